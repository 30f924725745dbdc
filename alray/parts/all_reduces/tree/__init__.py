"""A binary tree."""
