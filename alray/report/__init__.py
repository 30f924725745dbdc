"""Reports: figures, charts, a timeline and one HTML page, computed from the records and the plan of a run."""
