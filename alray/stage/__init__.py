"""What one device does: execute its actions on its components. No Ray."""
