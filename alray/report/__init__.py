"""Records and a plan in; figures, curves, a timeline and one HTML page out. Starts and measures nothing."""
