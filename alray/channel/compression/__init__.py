"""What gradients are turned into before they are summed over the replicas, to send fewer bytes."""
