"""Networks that were not written for alray, cut into components by trial."""
