"""Metrics of classes, from the right predictions of each class, its samples and all predictions of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from alray.models.task import Tally

OfCounts = Callable[[Tensor, Tensor, Tensor], float]
"""From the right predictions of each class, its samples and all predictions of it, [classes] int64 each."""


class ClassCounts(Tally):
    """Counts for each class its samples, the predictions of it, and those that are right."""

    def __init__(self, metric: str, classes: int) -> None:
        super().__init__()
        self._metric = metric
        if metric in ("macro_f1", "mean_iou"):
            self.instead = "0, where predicted, in"
        self._of_classes, self._predicted, self._right = torch.zeros(3, classes, dtype=torch.int64)

    def count(self, predicted: Tensor, known: Tensor, labels: Tensor) -> None:
        """Add predictions of classes.

        Args:
            predicted, labels: [N] int64.
            known: [N] bool, which of the predictions are one.
        """
        classes = len(self._right)
        self._of_classes += labels.bincount(minlength=classes)
        self._predicted += predicted[known].bincount(minlength=classes)
        self._right += labels[known & (predicted == labels)].bincount(minlength=classes)

    def value(self) -> float | None:
        if not self._of_classes.any():
            return None
        return OF_COUNTS[self._metric](self._right, self._of_classes, self._predicted)

    @property
    def undefined(self) -> Sequence[int]:
        if self._metric == "accuracy":
            return ()
        return torch.nonzero(self._of_classes == 0).flatten().tolist()


def accuracy(right: Tensor, samples: Tensor, predicted: Tensor) -> float:
    """The share of samples whose class is recognised."""
    return int(right.sum()) / int(samples.sum())


def balanced_accuracy(right: Tensor, samples: Tensor, predicted: Tensor) -> float:
    """The mean, over the classes that have samples, of the share of them that is recognised."""
    return float((right.double() / samples)[samples > 0].mean())


def macro_f1(right: Tensor, samples: Tensor, predicted: Tensor) -> float:
    """The mean of 2 right / (samples + predicted) over the classes that have samples or are predicted."""
    either = samples + predicted
    return float((2 * right.double() / either)[either > 0].mean())


def mean_iou(right: Tensor, samples: Tensor, predicted: Tensor) -> float:
    """The mean of right / (samples + predicted - right) over the classes that have samples or are predicted."""
    either = samples + predicted - right
    return float((right.double() / either)[either > 0].mean())


OF_COUNTS: dict[str, OfCounts] = {
    "accuracy": accuracy,
    "balanced_accuracy": balanced_accuracy,
    "macro_f1": macro_f1,
    "mean_iou": mean_iou,
}
