"""Adam with decoupled weight decay."""
