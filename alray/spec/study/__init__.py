"""Studies: the grammar of a study spec, its points, and the trials it consists of."""
