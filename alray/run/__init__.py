"""Drive a graph: progress, checkpoints, failures, stopping."""
