"""Half a cosine from the full rate at the end of warm-up to `final_lr` at the end of the run."""
