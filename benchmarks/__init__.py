"""Figures: each a ratio of two things measured in one run of a benchmark, with repeats."""
