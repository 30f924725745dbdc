"""Associated Learning: every component has local losses, nothing travels backwards."""
