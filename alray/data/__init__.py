"""Sources' shared code; from a source to the splits of a run; mini-batches, tokens, vocabularies."""
