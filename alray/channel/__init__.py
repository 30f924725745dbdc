"""How tensors move between neighbours."""
