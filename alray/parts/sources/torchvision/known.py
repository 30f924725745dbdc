"""What alray knows of torchvision's sets for classification before it reads their files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from alray.config.sections.expected import Expected

Arguments = Mapping[str, Mapping[str, Any]]
"""Those of torchvision's class that select each set: "train", "test" and "validation"."""
_UNKNOWN = Expected()


@dataclass(frozen=True)
class Known:
    """What is known of a set; None: what torchvision's class says itself, or nothing.

    Attributes:
        sizes: the published ones. Without a shape, pictures differ in size.
        splits: None: by the constructor: `split` is "train" or "test", `train` is true or false, or the set is whole.
        options: the further arguments that a spec may give. None: all of the constructor.
        published: means and standard deviations of the training set, for values scaled to 0..1.
    """

    sizes: Expected = _UNKNOWN
    splits: Arguments | None = None
    options: tuple[str, ...] | None = None
    published: tuple[tuple[float, ...], tuple[float, ...]] | None = None


def _named(train: str = "train", test: str = "test", validation: str | None = None, key: str = "split") -> Arguments:
    names = {"train": train, "test": test, "validation": validation}
    return {name: {key: given} for name, given in names.items() if given is not None}


_MNIST = Expected((1, 28, 28), 10, 60_000, 10_000)
KNOWN = {
    "CIFAR10": Known(
        Expected((3, 32, 32), 10, 50_000, 10_000), published=((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
    ),
    "CIFAR100": Known(
        Expected((3, 32, 32), 100, 50_000, 10_000), published=((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
    ),
    "MNIST": Known(_MNIST, published=((0.1307,), (0.3081,))),
    "FashionMNIST": Known(_MNIST, published=((0.2860,), (0.3530,))),
    "KMNIST": Known(_MNIST),
    "EMNIST": Known(Expected((1, 28, 28), 47, 112_800, 18_800)),
    "QMNIST": Known(Expected((1, 28, 28), 10, 60_000, 60_000), options=()),
    "USPS": Known(Expected((1, 16, 16), 10, 7_291, 2_007)),
    "SEMEION": Known(Expected((1, 16, 16), 10, 1_593)),
    "SVHN": Known(Expected((3, 32, 32), 10, 73_257, 26_032)),
    "STL10": Known(Expected((3, 96, 96), 10, 5_000, 8_000)),
    "Caltech101": Known(Expected(None, 101, 8_677), options=()),
    "Caltech256": Known(Expected(None, 257, 30_607)),
    "Country211": Known(Expected(None, 211, 31_650, 21_100, validation=10_550), _named(validation="valid")),
    "DTD": Known(Expected(None, 47, 1_880, 1_880, validation=1_880), _named(validation="val")),
    "EuroSAT": Known(Expected((3, 64, 64), 10, 27_000)),
    "FGVCAircraft": Known(Expected(None, 100, 6_667, 3_333), _named("trainval")),
    "Flowers102": Known(Expected(None, 102, 1_020, 6_149, validation=1_020), _named(validation="val")),
    "Food101": Known(Expected(None, 101, 75_750, 25_250)),
    "GTSRB": Known(Expected(None, 43, 26_640, 12_630)),
    "INaturalist": Known(
        Expected(None, 10_000, 2_686_843, 100_000), _named("2021_train", "2021_valid", key="version"), ("target_type",)
    ),
    "ImageNet": Known(Expected(None, 1_000, 1_281_167, 50_000), _named(test="val"), options=()),
    "Imagenette": Known(Expected(None, 10, 9_469, 3_925), _named(test="val")),
    "OxfordIIITPet": Known(Expected(None, 37, 3_680, 3_669), _named("trainval"), options=()),
    "Places365": Known(Expected(None, 365, 1_803_460, 36_500), _named("train-standard", "val")),
    "RenderedSST2": Known(Expected(None, 2, 6_920, 1_821, validation=872), _named(validation="val")),
    "StanfordCars": Known(Expected(None, 196, 8_144, 8_041)),
    "SUN397": Known(Expected(None, 397, 108_754)),
}
"""Where the labels of the test set are not public, the validation set is the test set."""


def known_of(dataset: str) -> Known:
    """What is known of the set of this name. Of one that alray does not list, that is nothing."""
    return KNOWN.get(dataset, Known())
