"""Tiny-ImageNet as in its archive: 3 x 64 x 64, 200 classes."""
