"""Decoupled greedy learning (DGL): a classifier with the loss of the task after every component."""
