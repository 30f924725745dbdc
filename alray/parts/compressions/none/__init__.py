"""Gradients are sent unchanged."""
