"""Local error signals (predsim): a readout with cross-entropy, and similarities that match those of the labels."""
