"""The full rate times `factor` for each entry of `at` that has passed since the start of the run."""
