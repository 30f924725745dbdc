"""From a file, overrides and bases to a checked spec, with the location of each value and of each problem."""
