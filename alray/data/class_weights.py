"""The weights of classes in the loss (`task.class_weights`): one number for each class, from what the spec says."""

from __future__ import annotations

import torch
from torch import Tensor

from alray.config.sections.task import ClassWeights
from alray.core.errors import DataError
from alray.data.columns import MOST_SHOWN, plain

_KEY = "task.class_weights"


def class_weights(asked: ClassWeights | None, classes: tuple[str, ...], labels: Tensor | None) -> Tensor | None:
    """The weight of each class, [classes] float64; None if the spec says none.

    `balanced` gives a class n / (k n_c), of n samples in k classes that have samples, n_c in this one, as
    scikit-learn's `compute_class_weight`.

    Args:
        classes: their names, in the order of their numbers.
        labels: the class of each training sample, [n] int64; None: it is known only when samples are read.

    Raises:
        DataError: if a weight is given for no class, or classes cannot be counted.
    """
    if asked is None:
        return None
    if isinstance(asked, tuple):
        if len(asked) != len(classes):
            message = f"expected a weight for each of {len(classes)} classes, got {len(asked)}"
            raise DataError(message, key=_KEY, hint=f"the classes are {_shown(classes)}")
        return torch.tensor(asked, dtype=torch.float64)
    if isinstance(asked, dict):
        by_name = {plain(name): weight for name, weight in asked.items()}
        if unknown := [name for name in by_name if name not in classes]:
            message = f"there is no class `{unknown[0]}`"
            raise DataError(message, key=_KEY, hint=f"the classes are {_shown(classes)}")
        return torch.tensor([by_name.get(name, 1.0) for name in classes], dtype=torch.float64)
    if labels is None:
        raise DataError(
            "these samples have no classes that are known before they are read, so none can be counted",
            key=_KEY,
            hint="give one weight for each class",
        )
    labels = labels[labels >= 0]  # others are refused where they are read
    counts = labels.bincount(minlength=len(classes)).double()
    present = counts > 0
    return torch.where(present, len(labels) / (present.sum() * counts.clamp(min=1)), 1.0)


def weighted(labels: Tensor, of_all: Tensor, weights: Tensor) -> Tensor:
    """Labels with the weights of their samples, [N, 2] float64: the number of a class, and its weight as a share of the
    mean weight of the mini-batch.

    Args:
        labels: of some samples of a mini-batch, [N] int64.
        of_all: those of all its samples, over all replicas.
        weights: of the classes.
    """
    return torch.stack([labels.double(), weights[labels] / weights[of_all].mean()], 1)


def _shown(classes: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in classes[:MOST_SHOWN]) + (", ..." if classes[MOST_SHOWN:] else "")
