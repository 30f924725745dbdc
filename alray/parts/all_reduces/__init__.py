"""How replicas can add up their gradients.

`algorithm.py` has a class derived from `AllReduce`, which sends the messages; `seconds(n, m, link)` in `cost.py`
predicts their time.
"""
