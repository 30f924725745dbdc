"""The order in which stages can compute: one file for each schedule, which makes one `SCHEDULE`."""
