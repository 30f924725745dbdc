"""All-reduces among the replicas of a component: the backend's own, and four written on point to point."""
