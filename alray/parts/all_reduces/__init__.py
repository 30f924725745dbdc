"""How replicas can add up their gradients. `algorithm.py` sends the messages, `cost.py` predicts their time."""
