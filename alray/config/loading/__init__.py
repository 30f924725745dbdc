"""From a file, overrides and a base to a checked spec, with the location of each value and of each problem."""
