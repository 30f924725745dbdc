"""A page of a run in progress, served on this machine: `alray watch` and `--watch`."""
