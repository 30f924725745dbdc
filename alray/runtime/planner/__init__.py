"""How a run will run: its costs, cut, schedule, micro-batches and memory. Open `planning.py` first.

`opening.py` makes the planner of a spec, and `fitting.py` searches what fits on given devices (`alray plan --compare`).
"""
