"""Recursive halving and doubling."""
