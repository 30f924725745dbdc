"""Sources of numbers and of labels, from data that come with scikit-learn."""

from __future__ import annotations

import torch
from sklearn.datasets import load_diabetes, load_digits
from torch import Tensor

from alray.data.source import Normalisation, TensorSet


def divided(samples: Tensor, labels: Tensor) -> dict[str, TensorSet]:
    """A fixed fifth of the samples is the test set."""
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(0))
    cut = len(samples) // 5
    parts = {"test": order[:cut], "train": order[cut:]}
    return {split: TensorSet(samples[part], labels[part]) for split, part in parts.items()}


class Diabetes:
    """442 patients: ten measurements each, and a number for the progress of diabetes within a year, 25 to 346."""

    classes = ("progress",)

    def __init__(self) -> None:
        measured, progress = load_diabetes(return_X_y=True)
        samples = torch.tensor(measured / measured.std(axis=0), dtype=torch.float32)
        self._sets = divided(samples, torch.tensor(progress, dtype=torch.float32).unsqueeze(1))
        targets = self._sets["train"].labels.double()
        self.target_normalisation = Normalisation(tuple(targets.mean(0).tolist()), tuple(targets.std(0).tolist()))

    def open(self, split: str) -> TensorSet:
        return self._sets[split]


class DigitTraits:
    """The 1,797 handwritten digits, 1 x 8 x 8 pixels, each with those of four traits that its digit has."""

    classes = ("even", "prime", "above four", "with a loop")
    _with_trait = ((0, 2, 4, 6, 8), (2, 3, 5, 7), (5, 6, 7, 8, 9), (0, 6, 8, 9))
    normalisation = Normalisation(mean=(8.0,), std=(8.0,))

    def __init__(self) -> None:
        digits = load_digits()
        samples = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1)
        has = [[float(digit in of) for of in self._with_trait] for digit in digits.target.tolist()]
        self._sets = divided(samples, torch.tensor(has))

    def open(self, split: str) -> TensorSet:
        return self._sets[split]


class RareDigits:
    """The handwritten digits, 1 x 8 x 8 pixels, where training has one picture in ten of the digits 1, 8 and 9."""

    classes = tuple(map(str, range(10)))
    normalisation = Normalisation(mean=(8.0,), std=(8.0,))
    _rare = torch.tensor([1, 8, 9])

    def __init__(self) -> None:
        digits = load_digits()
        samples = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1)
        self._sets = divided(samples, torch.tensor(digits.target))
        train = self._sets["train"]
        kept = ~torch.isin(train.labels, self._rare) | (torch.arange(len(train)) % 10 == 0)
        self._sets["train"] = TensorSet(train.samples[kept], train.labels[kept])

    def open(self, split: str) -> TensorSet:
        return self._sets[split]
