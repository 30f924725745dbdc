"""The first component of a ResNet: a 3x3 convolution (padding 1, no bias), batch normalisation, ReLU."""
