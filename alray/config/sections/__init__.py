"""The declarations of a spec: its sections with their keys, and the rules across keys."""
