"""How weights can be updated.

An optimizer is a file: its section of a spec, and `chosen(section, parameters, roles)`, which says which of torch's
optimizers update which parameters, as a list of `Chosen`.
"""
