"""The published sizes of torchvision's sets for classification."""

from __future__ import annotations

from alray.config.sections.expected import Expected

_MNIST = Expected((1, 28, 28), 10, 60_000, 10_000)
KNOWN = {
    "CIFAR10": Expected((3, 32, 32), 10, 50_000, 10_000),
    "CIFAR100": Expected((3, 32, 32), 100, 50_000, 10_000),
    "MNIST": _MNIST,
    "FashionMNIST": _MNIST,
    "KMNIST": _MNIST,
    "EMNIST": Expected((1, 28, 28), 47, 112_800, 18_800),
    "QMNIST": Expected((1, 28, 28), 10, 60_000, 60_000),
    "USPS": Expected((1, 16, 16), 10, 7_291, 2_007),
    "SEMEION": Expected((1, 16, 16), 10, 1_593),
    "SVHN": Expected((3, 32, 32), 10, 73_257, 26_032),
    "STL10": Expected((3, 96, 96), 10, 5_000, 8_000),
    "Caltech101": Expected(None, 101, 8_677),
    "Caltech256": Expected(None, 257, 30_607),
    "Country211": Expected(None, 211, 31_650, 21_100, validation=10_550),
    "DTD": Expected(None, 47, 1_880, 1_880, validation=1_880),
    "EuroSAT": Expected((3, 64, 64), 10, 27_000),
    "FGVCAircraft": Expected(None, 100, 6_667, 3_333),
    "Flowers102": Expected(None, 102, 1_020, 6_149, validation=1_020),
    "Food101": Expected(None, 101, 75_750, 25_250),
    "GTSRB": Expected(None, 43, 26_640, 12_630),
    "INaturalist": Expected(None, 10_000, 2_686_843, 100_000),
    "ImageNet": Expected(None, 1_000, 1_281_167, 50_000),
    "Imagenette": Expected(None, 10, 9_469, 3_925),
    "OxfordIIITPet": Expected(None, 37, 3_680, 3_669),
    "Places365": Expected(None, 365, 1_803_460, 36_500),
    "RenderedSST2": Expected(None, 2, 6_920, 1_821, validation=872),
    "StanfordCars": Expected(None, 196, 8_144, 8_041),
    "SUN397": Expected(None, 397, 108_754),
}
"""The published sizes of torchvision's sets for classification. Without a shape, pictures differ in size. Where the
labels of the test set are not public, the validation set is the test set."""
