"""Values are sent unchanged."""
