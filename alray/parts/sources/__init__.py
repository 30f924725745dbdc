"""Where samples can come from.

`keys.py` of a source is its section of a spec; `opened(section, task)` in its `source.py` makes the `Source`. What
several sources share is in `alray/data`.
"""
