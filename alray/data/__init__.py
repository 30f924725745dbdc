"""Sources, and batches with their exact position."""
