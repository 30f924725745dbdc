"""How gradients can be compressed before they are sent.

`keys.py` of a compression is its section of a spec; `compression.py` has a class derived from `Compression`, which is
called with the layout of the gradients, a seed and the fields.
"""
