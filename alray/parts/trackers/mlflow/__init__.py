"""MLflow."""
