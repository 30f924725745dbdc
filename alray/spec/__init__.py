"""The spec: pydantic models, loading with line numbers, overrides and checks. It imports neither torch nor Ray."""
