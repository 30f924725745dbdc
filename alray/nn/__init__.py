"""Blocks, components and methods."""
