"""The stages of a plan as the driver starts, polls and ends them: see `graph.py`.

`ray_graph.py` has them in Ray actors: `processes.py` begins the processes, `actor.py` is one stage in its process.
`inline.py` has them all in this process.
"""
