"""Any optimizer of torch.optim, by the name of its class."""
