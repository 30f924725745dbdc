"""Straight from `first_factor` to `final_factor` times the full rate, over `length`, then constant."""
