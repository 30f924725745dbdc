"""How tensors can be compressed before they are sent: gradients between replicas, and what passes between components.

`keys.py` of a compression is its section of a spec. `compression.py` has a class derived from
`alray.runtime.channel.compression.Compression`, called with the layout of the gradients, a seed and the fields;
`message.py` one derived from `alray.models.message_compression.MessageCompression`, called with the fields. A part has
one of them, or both.
"""
