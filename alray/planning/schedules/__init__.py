"""Schedules of the pipeline: one file each, one table of them, and the actions they are made of."""
