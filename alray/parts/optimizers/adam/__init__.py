"""Adam. Weight decay is added to the gradient."""
