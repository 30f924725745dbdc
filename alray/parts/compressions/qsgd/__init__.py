"""QSGD (Alistarh et al. 2017, arXiv 1610.02132): gradients are rounded at random to a few levels."""
