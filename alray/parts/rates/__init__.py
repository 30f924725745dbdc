"""How the learning rate can change. `keys.py` of a schedule is its section of a spec, `rate.py` its formula."""
