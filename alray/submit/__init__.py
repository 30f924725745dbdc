"""Runs on a cluster through Ray Jobs: what to pack, the cluster's dashboard, following a job, fetching its folder."""
