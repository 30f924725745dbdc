"""Programs that can show a run while it is running. `keys.py` of a tracker is its section of a spec, `tracker.py` its
code."""
