"""PowerSGD (Vogels et al. 2019, arXiv 1905.13727): a matrix is sent as two thin factors."""
