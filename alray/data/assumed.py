"""Data that are not there: their sizes are known, and their samples are noise. For a plan, and for a network whose data
need not be opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from alray.config.sections.data import DataSection
from alray.config.sections.task import TaskSection
from alray.core.randomness.generators import generator
from alray.data.dataset import Dataset
from alray.data.division import part_sizes
from alray.data.form import DataForm
from alray.data.sample_data import require_images_to_augment
from alray.data.split import Augment, EpochPosition, Split
from alray.models.shape import Shape
from alray.models.task import LearningTask, make_task
from alray.models.token_embedding import PADDING

_FEW = 16


def assumed_data(section: DataSection, task_section: TaskSection, load: Callable[[str], Any]) -> Dataset:
    """Data of the sizes that the section says. Raises DataError if they are too small for one mini-batch.

    Args:
        load: as for `open_data`.
    """
    expected = section.expected
    assert expected.samples is not None and expected.shape is not None and expected.classes is not None
    task = make_task(task_section, expected.classes, expected.shape, load)
    num_validation, num_train = part_sizes(expected.samples, section)
    if section.own_validation:
        num_validation = expected.validation
    require_images_to_augment(section, expected.shape)
    amount = f"{expected.samples:,} samples of shape {list(expected.shape)}"
    if expected.words is not None:
        shape = Shape(expected.shape, torch.int64, words=_made_up(expected.words))
        amount = f"{expected.samples:,} documents of up to {shape[0]} words, of {expected.words:,} different ones,"
    elif expected.tokens:
        shape = Shape(expected.shape, torch.int64, tokens=expected.classes)
    else:
        shape = Shape(expected.shape)
    classes = tuple(f"class_{number}" for number in range(expected.classes))

    def split(samples: int) -> AssumedSplit | None:
        return AssumedSplit(samples, shape, classes, task) if samples else None

    train = split(num_train)
    assert train is not None, "a division leaves a sample for training"
    whence = "the published sizes of this set" if section.assume is None else "as data.assume says"
    return Dataset(
        section=section,
        task=task,
        train=train,
        validation=split(num_validation),
        test=split(expected.test),
        inputs=None,
        num_samples=expected.samples,
        class_weights=None if task_section.weights_of_classes is None else torch.ones(len(classes)).double(),
        contents=None,
        assumed=f"planned without the data: {amount} in {expected.classes} classes ({whence})",
    )


def described_data(
    section: DataSection, task_section: TaskSection, form: DataForm, load: Callable[[str], Any]
) -> Dataset:
    """Data of which the form is known: a few samples for training, and no others.

    Args:
        load: as for `open_data`.
    """
    task = make_task(task_section, len(form.classes), form.sample, load)
    return Dataset(
        section=section,
        task=task,
        train=AssumedSplit(_FEW, form.sample, form.classes, task),
        validation=None,
        test=None,
        inputs=None,
        num_samples=_FEW,
        contents=None,
    )


def _made_up(words: int) -> tuple[str, ...]:
    """As many words that no document has, for the numbers of a vocabulary."""
    from alray.data.vocabulary import SPECIALS  # which imports torchtext

    return (*SPECIALS, *(f"word_{number}" for number in range(len(SPECIALS), words)))


class AssumedSplit(Split):
    """A number of samples of one shape: noise, as many random words as a document may have, or random tokens."""

    def __init__(self, samples: int, shape: Shape, classes: tuple[str, ...], task: LearningTask) -> None:
        super().__init__(shape, classes)
        self._samples = samples
        self._task = task

    def __len__(self) -> int:
        return self._samples

    def take(
        self, positions: Sequence[int] | Tensor, augment: Augment | None = None, at: EpochPosition | None = None
    ) -> tuple[Tensor, Tensor]:
        drawn = generator(0, "assumed", len(positions))
        size = (len(positions), *self.shape)
        numbers = self.shape.tokens or self.shape.numbers
        if self.shape.several is not None:
            samples = self.shape.several.noise(len(positions), drawn)
        elif numbers is not None:
            samples = torch.randint(numbers, size, generator=drawn)
        elif self.shape.words is not None:
            samples = torch.randint(PADDING + 1, len(self.shape.words), size, generator=drawn)
        else:
            samples = torch.rand(size, generator=drawn)
        if self._task.label_shape or self._task.label_dtype.is_floating_point:
            return samples, torch.zeros(len(positions), *self._task.label_shape, dtype=self._task.label_dtype)
        return samples, torch.as_tensor(positions, dtype=torch.int64) % len(self.classes)

    def mask(self, samples: Tensor) -> Tensor | None:
        return None if self.shape.words is None else samples != PADDING
