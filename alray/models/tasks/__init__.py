"""Tasks: what a network learns, one file each."""
