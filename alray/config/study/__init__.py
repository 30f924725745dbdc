"""Loading a study: its points, each checked as a spec, and its trials."""
