"""The work of one device: it executes its actions on its components. No Ray."""
