"""Each sample has one of several classes."""
