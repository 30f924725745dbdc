"""Blocks, components, objectives."""
