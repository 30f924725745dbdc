"""Networks that were not written for alray: traced, cut where a single tensor is alive, and used as components."""
