"""How weights can be updated.

`keys.py` of an optimizer is its section of a spec; `chosen(section, parameters, roles)` in its `optimizer.py` says
which of torch's optimizers update which parameters, as a list of `Chosen`.
"""
