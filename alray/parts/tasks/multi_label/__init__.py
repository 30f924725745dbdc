"""Each sample has any number of several labels."""
