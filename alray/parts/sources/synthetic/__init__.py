"""Artificial samples, for tests and timings: the pattern of a class plus random noise."""
