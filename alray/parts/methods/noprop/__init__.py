"""NoProp: every component denoises an embedding of the label from the sample, which travels with the message."""
