"""Studies on Ray Tune: many trials of one spec, each of them a run, and the table that they end in."""
