"""What a network can learn.

`keys.py` of a task is its section of a spec; `task.py` its code, a class that is called with the section, the width
of a readout and the shape of a sample; `METRICS` in its `__init__.py` what it can be measured by.
"""
