"""Associated Learning: every component has its own local losses, nothing travels backwards."""
