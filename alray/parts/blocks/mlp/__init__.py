"""Several linear layers."""
