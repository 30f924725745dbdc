"""The content of a run folder: its records, the manifests of its checkpoints, and the identity of its data."""
