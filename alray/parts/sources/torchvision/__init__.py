"""One of torchvision's data sets, read from disk or downloaded."""
