"""Mono-Forward: a projection to the classes with cross-entropy after every component, and their sum predicts."""
