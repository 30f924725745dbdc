"""Ways to compress gradients before they are summed over the replicas, so that fewer bytes are sent."""
