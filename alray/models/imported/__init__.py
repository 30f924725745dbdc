"""Networks that were not written for alray, cut into components: by a trace, or by their list of layers."""
