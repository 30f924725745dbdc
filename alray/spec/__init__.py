"""Pydantic models of the spec, loading with line numbers, overrides, checks. No torch, no Ray."""
