"""A page of a run that goes on, served on this machine: `alray watch` and `--watch`."""
