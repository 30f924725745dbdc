"""How a stage trains on one mini-batch: by local losses, by backpropagation, in a pipeline, or under DDP."""
