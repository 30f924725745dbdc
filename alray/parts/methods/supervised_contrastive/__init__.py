"""Supervised contrastive local losses (SCPL): samples of one class are drawn together, the others pushed apart."""
