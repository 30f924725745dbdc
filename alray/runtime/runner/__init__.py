"""Plan a run and drive it: engines, progress, checkpoints, failures, resuming."""
