"""LAMB: layer-wise adaptive rates for large batches, on Adam (You et al. 2020, arXiv 1904.00962)."""
