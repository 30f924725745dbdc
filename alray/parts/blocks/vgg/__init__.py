"""3x3 convolutions (padding 1, no bias), each with batch normalisation and ReLU, and an optional max pool."""
