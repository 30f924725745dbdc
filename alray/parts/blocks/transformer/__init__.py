"""A pre-norm Transformer encoder layer: self-attention and a feed-forward network, each with a residual path."""
