"""From a file to a checked spec."""
