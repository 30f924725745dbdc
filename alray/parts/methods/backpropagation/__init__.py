"""Backpropagation of the loss of the task, in classification the cross-entropy, through all components."""
