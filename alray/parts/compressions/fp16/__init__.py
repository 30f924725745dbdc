"""Gradients are sent and summed as 16-bit floats: half the bytes, the largest value is 65,504."""
