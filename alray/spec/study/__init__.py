"""The declarations of a study."""
