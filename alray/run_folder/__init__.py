"""What a run folder holds: its records, its checkpoints' manifests, and what tells its data from others."""
