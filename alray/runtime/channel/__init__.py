"""How tensors move between neighbouring stages and between replicas."""
