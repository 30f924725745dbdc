"""Auxiliary networks (AugLocal): after every component copies of encoders above, with a readout and cross-entropy."""
