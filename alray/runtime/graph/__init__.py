"""Ray actors, their placement on a cluster, and how they find each other. No training logic."""
