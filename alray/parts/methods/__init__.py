"""How a network can be trained.

The folder of a method is its section of a spec with the facts about it; `method.py` has its equations, in a class that
is called with the `NetworkFacts` and the fields.
"""
