"""Basic blocks of a ResNet: two 3x3 convolutions with batch normalisation and ReLU, and a shortcut around them."""
