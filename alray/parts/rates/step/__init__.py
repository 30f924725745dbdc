"""The full rate times `factor` for each `every` that has passed since the start of the run."""
