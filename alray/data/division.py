"""Which samples of a training set are for training, and which for validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from alray.config.sections.data import DataSection, TokenSection
from alray.config.sections.task import Label
from alray.core.errors import DataError
from alray.core.randomness.generators import generator
from alray.data.columns import MOST_SHOWN


class Parts(NamedTuple):
    """Indices into a training set, sorted, [n] int64 each."""

    train: Tensor
    validation: Tensor


def divide(num_samples: int, section: DataSection, seed: int, labels: Tensor | None = None) -> Parts:
    """Divide a training set by the seed. Raises DataError as `part_sizes`, or if the classes cannot be divided.

    Args:
        labels: the class of each sample, [N] int64; None: there are none, or they are known only when samples are read.
    """
    num_validation, num_train = part_sizes(num_samples, section)
    if not section.split_by_classes:
        validation, train = drawn(num_samples, (num_validation, num_train), seed, "validation")
        return Parts(train, validation)
    if labels is None or bool((labels < 0).any()):
        raise DataError(
            "these samples have no classes that are known before they are read",
            key="data.split_by_classes",
            hint="leave it out",
        )
    return _divided_by_classes(labels, num_validation, num_train, seed)


def drawn(count: int, sizes: Sequence[int], seed: int, purpose: str) -> tuple[Tensor, ...]:
    """Return disjoint random parts of the numbers 0 to count - 1, each of them sorted, [size] int64.

    The same count, sizes, seed and purpose give the same parts.
    """
    order = torch.randperm(count, generator=generator(seed, purpose))
    return tuple(part.sort().values for part in order[: sum(sizes)].split(list(sizes)))


def _divided_by_classes(labels: Tensor, num_validation: int, num_train: int, seed: int) -> Parts:
    """Divide so that each class has its share of both parts (`shares`), and at least one sample in training.

    The parts depend on the labels and the seed alone.

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
        members = order[of_class == number]
        parts[0].append(members[validation[number] : validation[number] + train[number]])
        parts[1].append(members[: validation[number]])
    return Parts(*(torch.cat(part).sort().values for part in parts))


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


def part_sizes(num_samples: int, section: DataSection) -> tuple[int, int]:
    """Return the sizes of the validation and the training split. Raises DataError if they leave no mini-batch, or no
    document that could be cut into windows."""
    num_validation, num_train = section.split(num_samples)
    left = section.left_of(num_samples)
    if num_train == 0:
        raise DataError(left, key="data", hint="decrease the first or increase the second")
    if not isinstance(section, TokenSection):
        require_mini_batch(num_train, section, left)
    return num_validation, num_train


def require_mini_batch(num_train: int, section: DataSection, left: str) -> None:
    """Raise DataError if the training split has no mini-batch.

    Args:
        left: its size in words.
    """
    fault = section.mini_batch_fault(num_train, left)
    if fault is not None:
        raise DataError(fault[0], key="data.batch_size", hint=fault[1])


def never_trained(labels: Tensor | None, train: Tensor, classes: tuple[str, ...]) -> tuple[str, ...]:
    """A sentence about the classes or labels of which the training split has no sample, and about a class that is the
    only one; none if there are none.

    Args:
        labels: as for `divide`; or [N, labels], not 0 where a sample has one of several labels.
        train: the indices of the training split.
    """
    if labels is None:
        return ()
    several = labels.ndim > 1
    in_all, trained = (
        set((each.any(0).nonzero().flatten() if several else each).tolist()) for each in (labels, labels[train])
    )
    missing = [name for number, name in enumerate(classes) if number not in trained]
    if not missing:
        alone = not several and len(classes) == 1
        return (f"`{classes[0]}` is the only class, so there is nothing to tell apart",) if alone else ()
    share = "" if several or in_all <= trained else "; data.split_by_classes=true leaves it its share"
    found = having("flags" if several else "class", missing, "no sample")
    return (f"{found} in the training split and cannot be learnt{share}",)


def having(label: Label, names: Sequence[str], what: str) -> str:
    """That classes, labels or targets have something, in words: "classes `a`, `b` have no sample".

    Args:
        label: what the labels of a task are.
    """
    noun, several = _NOUNS[label]
    shown = ", ".join(f"`{name}`" for name in names[:MOST_SHOWN])
    more = f" and {len(names) - MOST_SHOWN} more" if names[MOST_SHOWN:] else ""
    return f"{several if len(names) > 1 else noun} {shown}{more} {'have' if len(names) > 1 else 'has'} {what}"


_NOUNS: dict[Label, tuple[str, str]] = {
    "class": ("class", "classes"),
    "flags": ("label", "labels"),
    "numbers": ("target", "targets"),
    "tokens": ("token", "tokens"),
    "own": ("output", "outputs"),
}
