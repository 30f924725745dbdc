"""What the encoders of components can be.

The folder of a block is its section of a spec; `build(input, **fields)` in its `block.py` makes the module.
"""
