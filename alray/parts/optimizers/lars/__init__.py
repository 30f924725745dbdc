"""LARS: layer-wise adaptive rates for large batches, with momentum (You et al. 2017, arXiv 1708.03888)."""
