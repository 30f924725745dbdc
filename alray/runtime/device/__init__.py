"""The device a process computes on: what makes its bits reproducible, and its memory."""
