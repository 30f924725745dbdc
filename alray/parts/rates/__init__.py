"""How the learning rate can change.

`keys.py` of a rate is its section of a spec; `rate(section, at)` in its `rate.py` gives the rate at a `Moment`.
"""
