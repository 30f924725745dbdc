"""Divides a training set so that every class has its share of each part."""

from __future__ import annotations

import torch
from torch import Tensor

from alray.core.errors import DataError
from alray.data.source import generator


def parts_by_classes(labels: Tensor, num_validation: int, num_train: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return the indices of the training and of the validation split, sorted. They depend on the labels and the seed
    alone.

    Each class has its share of both (`shares`), and at least one sample in training.

    Args:
        labels: class numbers, [N] int64.

    Raises:
        DataError: if the training split has fewer samples than there are classes, or the validation split more than
            that leaves.
    """
    counts = labels.bincount().tolist()
    classes = sum(count > 0 for count in counts)
    if num_train < classes or num_validation > len(labels) - classes:
        raise DataError(
            f"{num_train} training samples and {num_validation} for validation do not leave each of {classes} classes "
            "one for training",
            key="data.split_by_classes",
            hint="use a smaller data.validation_fraction or a larger data.train_fraction",
        )
    validation = shares(num_validation, counts, least=[0] * len(counts), most=[max(0, count - 1) for count in counts])
    left = [count - taken for count, taken in zip(counts, validation, strict=True)]
    train = shares(num_train, left, least=[min(1, count) for count in left], most=left)
    order = torch.randperm(len(labels), generator=generator(seed, "validation"))
    of_class = labels[order]
    parts: tuple[list[Tensor], list[Tensor]] = ([], [])
    for number in range(len(counts)):
        drawn = order[of_class == number]
        parts[1].append(drawn[: validation[number]])
        parts[0].append(drawn[validation[number] : validation[number] + train[number]])
    return torch.cat(parts[0]).sort().values, torch.cat(parts[1]).sort().values


def shares(total: int, counts: list[int], *, least: list[int], most: list[int]) -> list[int]:
    """Divide `total` in proportion to `counts`, by largest remainders within these bounds; the first of equals comes
    first.

    Args:
        least, most: of each share. Their sums leave room for `total`.
    """
    whole = sum(counts)
    exact = [total * count / whole for count in counts]
    given = [min(max(int(share), low), high) for share, low, high in zip(exact, least, most, strict=True)]
    while (difference := total - sum(given)) != 0:
        step = 1 if difference > 0 else -1
        bound = most if step > 0 else least
        free = [number for number in range(len(counts)) if given[number] != bound[number]]
        given[max(free, key=lambda number: step * (exact[number] - given[number]))] += step
    return given
