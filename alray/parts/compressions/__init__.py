"""How gradients can be compressed before they are sent. `keys.py` of a compression is its section of a spec,
`compression.py` its code."""
