"""Straight from the full rate at the end of warm-up to `final_factor` times it, then constant."""
