"""The full rate throughout."""
