"""How replicas can sum their gradients.

`keys.py` of an all-reduce is its section of a spec; `algorithm.py` has a class derived from `AllReduce`, which sends
the messages and says how long they take.
"""
