"""What computes on a stage: local losses, a chain of backpropagation, or a network under DDP."""
