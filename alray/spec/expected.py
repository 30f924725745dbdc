"""The facts of data that are known before they are opened: from the kind of their source, or because a spec says so."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Expected:
    """Sizes of data; None: not known.

    shape: of one sample as the model gets it; of documents, the largest. samples: number of the training set, with what
    becomes validation. test: number of the test set; 0: none. words: size of the vocabulary of documents; None: the
    samples are no documents.
    """

    shape: tuple[int, ...] | None = None
    classes: int | None = None
    samples: int | None = None
    test: int = 0
    words: int | None = None

    @property
    def lacking(self) -> tuple[str, ...]:
        """The keys of `data.assume` without which there is no plan."""
        return tuple(key for key in ("shape", "classes", "samples") if getattr(self, key) is None)


KNOWN = {
    "CIFAR10": Expected((3, 32, 32), 10, 50_000, 10_000),
    "CIFAR100": Expected((3, 32, 32), 100, 50_000, 10_000),
    "MNIST": Expected((1, 28, 28), 10, 60_000, 10_000),
    "FashionMNIST": Expected((1, 28, 28), 10, 60_000, 10_000),
}
"""The published sizes of torchvision's data sets."""
TINY_IMAGENET = Expected((3, 64, 64), 200, 100_000, 10_000)
