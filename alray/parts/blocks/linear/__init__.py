"""One linear layer."""
