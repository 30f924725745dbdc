"""Ray actors, placement group and rendezvous; no training logic."""
