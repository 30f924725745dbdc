"""A learned vector for each word of the vocabulary."""
