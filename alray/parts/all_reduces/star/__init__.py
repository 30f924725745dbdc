"""A star: one rank adds up all tensors."""
