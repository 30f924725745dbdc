"""All-reduces between the replicas of a component: the one of gloo, and four built on point-to-point messages."""
