"""Each sample has one or more numbers, its targets."""
