"""Only the values of largest magnitude are sent."""
