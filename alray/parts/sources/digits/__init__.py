"""The 1,797 handwritten digits of scikit-learn: 1 x 8 x 8 pixels, 10 classes, no download."""
