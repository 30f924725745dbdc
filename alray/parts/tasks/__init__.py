"""What a network can learn. `keys.py` of a task is its section of a spec, `task.py` its code, `metrics.py` what it can
be measured by."""
