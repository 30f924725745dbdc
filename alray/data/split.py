"""A split of a run: samples and labels in a fixed order, read as mini-batches."""

from __future__ import annotations

import math
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from alray.config.user_code import named
from alray.core.errors import DataError
from alray.core.randomness.generators import put_back, seed_all
from alray.data.source import Normalisation, SampleSet, TensorSet
from alray.models.shape import Shape
from alray.models.task import Label, LearningTask

#: From a sample in 0..1 and its position in the mini-batch to the augmented sample of the same shape.
Augment = Callable[[Tensor, int], Tensor]

EpochPosition = tuple[int, int]
"""In training: an epoch, and the position in that epoch of the first sample of a mini-batch."""

_CPU = torch.device("cpu")
WHOLE = (torch.int8, torch.int16, torch.int32, torch.int64)
"""Types of whole numbers that stand for things, such as tokens; uint8 is for pictures."""


class Split(ABC):
    """Samples and labels in a fixed order."""

    normalisation: Normalisation | None = None
    """How samples are normalised after augmentation; None: not at all."""
    target_normalisation: Normalisation | None = None
    """How the targets of a regression are standardised; None: not at all."""
    reading = ""
    """The sample that is being read, such as "sample 7 of split `train`", for another thread; "": none."""

    def __init__(self, shape: Shape, classes: tuple[str, ...]) -> None:
        """
        Args:
            shape: of one sample as the model gets it; of text, that of the longest document.
        """
        self.shape = shape
        self.classes = classes

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def take(
        self, positions: Sequence[int] | Tensor, augment: Augment | None = None, at: EpochPosition | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return a mini-batch: samples [N, *shape] ([N, T] for text) in default strides, and labels as the task has
        them: [N] int64, or [N, outputs] float32.

        Args:
            at: where in training it is read; None in an evaluation.
        """

    def named(self, positions: Tensor) -> str:
        """Return the samples at these positions by their numbers in the source, as messages name them."""
        return f"samples {_numbers(positions)}"

    def mask(self, samples: Tensor) -> Tensor | None:
        """Return where samples from `take` have a word, [N, T] bool; None if the samples are not text."""
        return None

    def __getitem__(self, position: int) -> tuple[Tensor, Label]:
        samples, labels = self.take([range(len(self))[position]])
        return samples[0], labels[0] if labels.ndim > 1 else int(labels[0])


_MOST_NAMED = 100
"""Samples of a mini-batch that a message names."""
_PREPARED_BYTES = 1 << 28
"""Up to this size in float32, a split in memory is kept a second time in normalised form."""


class SampleSplit(Split):
    """Samples of one shape: normalised, float32; or rows of whole numbers, int64.

    Reading a sample raises DataError if its shape, values or label are wrong.
    """

    def __init__(
        self,
        samples: SampleSet,
        part: Tensor,
        *,
        name: str,
        given: tuple[int, ...],
        shape: Shape,
        classes: tuple[str, ...],
        task: LearningTask,
        normalisation: Normalisation | None,
        target_normalisation: Normalisation | None = None,
        own_seed: int | None = None,
    ) -> None:
        """
        Args:
            part: [len(self)] int64, indices into `samples`.
            name: the split of the source, for messages.
            given: the shape of a sample of the source; `shape` may have several equal channels in place of its one.
            normalisation: of the samples after augmentation; None: none.
            own_seed: of the run, where a user's code reads the samples: whatever it draws is seeded for each sample.
        """
        super().__init__(shape, classes)
        self._given = given
        self._task = task
        self.target_normalisation = target_normalisation
        self._own_seed = own_seed
        # A list itself runs no code of the user.
        kind: type = type(samples)
        self._draws = own_seed is not None and kind is not list and kind is not tuple
        self._samples = samples
        self._part = part
        self._name = name
        self.normalisation = normalisation
        # Samples in memory are checked and normalised all at once, when the first of them is read.
        self._prepared: Tensor | None = None
        self._preparable = (
            isinstance(samples, TensorSet)
            and samples.samples.dtype in (torch.float32, torch.float64, torch.uint8)
            and len(part) * math.prod(self.shape) * torch.float32.itemsize <= _PREPARED_BYTES
        )

    def __len__(self) -> int:
        return len(self._part)

    @property
    def samples(self) -> SampleSet:
        """The set of the source, of which this split is a part."""
        return self._samples

    def named(self, positions: Tensor) -> str:
        return f"samples {_numbers(self._part[positions])} of split `{self._name}`"

    def take(
        self, positions: Sequence[int] | Tensor, augment: Augment | None = None, at: EpochPosition | None = None
    ) -> tuple[Tensor, Tensor]:
        positions = torch.as_tensor(positions, dtype=torch.int64)
        indices = self._part[positions]
        if isinstance(self._samples, TensorSet):
            prepared = None if augment is not None else self._all_prepared(self._samples)
            if prepared is not None:
                return prepared[positions], self._standardised(self._samples.labels[indices])
            raw, labels = self._samples.samples[indices], self._samples.labels[indices]
        else:
            raw, labels = self._collate(indices, at)
        self._check_shape(tuple(raw.shape[1:]), f"sample {int(indices[0])} of split `{self._name}`")
        samples = self._floating(raw, f"sample {int(indices[0])} of split `{self._name}`")
        self._check_values(samples, labels, indices)
        if augment is not None:
            samples = torch.stack([augment(sample, row) for row, sample in enumerate(samples)])
        return self._normalise(samples), self._standardised(labels)

    def _all_prepared(self, samples: TensorSet) -> Tensor | None:
        """All samples, normalised at once. None: they are too large, or have a fault, and are read and checked per
        batch."""
        if self._preparable and self._prepared is None:
            raw, labels = samples.samples[self._part], samples.labels[self._part]
            self._preparable = (
                tuple(raw.shape[1:]) == self._given
                and bool(torch.isfinite(raw).all())
                and bool(self._task.fits(labels).all())
            )
            if self._preparable:
                self._prepared = self._normalise(self._floating(raw, f"split `{self._name}`"))
        return self._prepared

    def _floating(self, raw: Tensor, what: str) -> Tensor:
        """As `as_float`; but rows of float64 are rounded only when they are standardised, and whole numbers stay."""
        if self.shape.numbers is not None or self.shape.dtype == torch.int64:
            return as_whole(raw, what)
        if raw.dtype == torch.float64 and len(self.shape) == 1 and self.normalisation is not None:
            return raw
        return as_float(self._in_channels(raw), what)

    def _in_channels(self, raw: Tensor) -> Tensor:
        """The samples with as many channels as the model gets: [..., channels, height, width]."""
        return raw if self._given == self.shape else raw.expand(*raw.shape[:-3], *self.shape)

    def _normalise(self, samples: Tensor) -> Tensor:
        return samples if self.normalisation is None else self.normalisation.apply(samples).to(torch.float32)

    def _standardised(self, labels: Tensor) -> Tensor:
        if self.target_normalisation is not None:
            labels = self.target_normalisation.apply(labels)
        return labels.to(torch.float32) if labels.is_floating_point() else labels

    def _collate(self, indices: Tensor, at: EpochPosition | None) -> tuple[Tensor, Tensor]:
        samples: list[Tensor] = []
        labels: list[Label] = []
        with put_back() if self._draws else nullcontext():
            for row, index in enumerate(indices.tolist()):
                self.reading = what = f"sample {index} of split `{self._name}`"
                sample, label = self._read(index, what, at and (at[0], at[1] + row))
                self._check_shape(tuple(sample.shape), what)
                samples.append(sample)
                labels.append(label)
        self.reading = ""
        return torch.stack(samples), self._task.collated(labels)

    def _read(self, index: int, what: str, at: EpochPosition | None) -> tuple[Tensor, Label]:
        """An entry of the set.

        Args:
            at: epoch and position of this sample, from which a user's code draws.
        """
        if self._own_seed is None:
            return self._samples[index]
        if self._draws:
            seed_all(_CPU, self._own_seed, "sample", *(at or (self._name, index)))
        return own_entry(self._samples, index, what, self._task)

    def _check_shape(self, shape: tuple[int, ...], what: str) -> None:
        if shape != self._given:
            raise DataError(
                f"{what} has shape {list(shape)}, but the first training sample has {list(self._given)}",
                key="data",
                hint="give all samples the same shape",
            )

    def _check_values(self, samples: Tensor, labels: Tensor, indices: Tensor) -> None:
        wrong = ~self._task.fits(labels)
        if wrong.any():
            row = int(wrong.nonzero()[0])
            raise wrong_label(f"sample {int(indices[row])} of split `{self._name}`", labels[row], self._task)
        if self.shape.numbers is not None:
            self._check_numbers(samples, self.shape.numbers, indices)
        # The sum is not finite if a value is not. It takes a tenth of the time, but may overflow.
        if not torch.isfinite(samples.sum()) and not torch.isfinite(samples).all():
            finite = torch.isfinite(samples).flatten(1).all(dim=1)
            row = int((~finite).nonzero()[0])
            raise DataError(
                f"sample {int(indices[row])} of split `{self._name}` has a value that is not finite",
                key="data",
                hint="remove or repair this sample",
            )

    def _check_numbers(self, samples: Tensor, numbers: int, indices: Tensor) -> None:
        outside = (samples < 0) | (samples >= numbers)
        if outside.any():
            row, position = outside.nonzero()[0].tolist()
            raise DataError(
                f"sample {int(indices[row])} of split `{self._name}` has {int(samples[row, position])}, and there are "
                f"numbers from 0 to {numbers - 1}",
                key="data",
                hint="say how many there are, with those that the test has: data={'numbers': ...}",
            )


def _numbers(indices: Tensor) -> str:
    """The numbers in ascending order, at most `_MOST_NAMED` of them."""
    named = ", ".join(map(str, indices.sort().values[:_MOST_NAMED].tolist()))
    return f"{named}, ..." if len(indices) > _MOST_NAMED else named


_PAIR = "return (tensor, integer label) from the source's sets"


def wrong_label(what: str, label: Tensor, task: LearningTask) -> DataError:
    """The error of a label that the task does not have. `what` names the sample."""
    of_classes = not (label.is_floating_point() or label.ndim)
    value = reprlib.repr(label.tolist())
    fault = f"has label {value}, but there are {task.width} classes" if of_classes else f"has the label {value}"
    return DataError(f"{what} {fault}", key="data", hint=task.wants)


def own_entry(samples: SampleSet, index: int, what: str, task: LearningTask) -> tuple[Tensor, Label]:
    """Read a sample and its label from a user's set. `what` names the sample in messages.

    Raises UserCodeError if the user's code raises, and DataError if the entry is not a tensor with a label of the task.
    """
    with named("the data source", f"reading {what}", key="data.source"):
        entry: object = samples[index]
    match entry:
        case (sample, label):
            return _tensor(sample, what), _label(label, what, task)
        case dict():
            held = f"a dictionary of {', '.join(f'`{key}`' for key in entry)}"
        case Tensor():
            held = "one tensor"
        case _:
            held = f"of type {type(entry).__name__}"
            held += f" with {len(entry)} entries" if isinstance(entry, tuple | list) else ""
    raise DataError(f"{what} is {held}, not a pair of a tensor and a label", key="data", hint=_PAIR)


def _tensor(sample: object, what: str) -> Tensor:
    if isinstance(sample, Tensor):
        return sample
    raise DataError(
        f"{what} is of type {type(sample).__name__}, not a torch tensor",
        key="data",
        hint="set data.text, for example to {}, if the samples are documents" if isinstance(sample, str) else _PAIR,
    )


def _label(label: object, what: str, task: LearningTask) -> Label:
    read = task.read(label)
    if read is not None:
        return read
    held = f"the label {reprlib.repr(label)}"
    if isinstance(label, Tensor) and label.numel() != 1:
        held = f"a tensor of shape {list(label.shape)} as its label"
    if task.label_shape or task.takes_any_label:
        raise DataError(f"{what} has {held}", key="data", hint=task.wants)
    raise DataError(
        f"{what} has {held}, which is not an integer",
        key="data",
        hint="return (tensor, integer label) from the source's sets: each sample belongs to one class; or set the "
        "task: regression for numbers, multi_label for rows of 0 and 1",
    )


def as_float(raw: Tensor, what: str) -> Tensor:
    """Return a new float32 tensor in default strides. uint8 is scaled from 0..255 to 0..1.

    `what` names the sample in messages. Raises DataError for other integers.
    """
    if raw.dtype != torch.uint8 and not raw.is_floating_point():
        raise DataError(
            f"{what} has values of type {raw.dtype}",
            key="data",
            hint="use uint8, which is scaled to 0..1, or floating point",
        )
    # Not `contiguous()`: for maps of 1 x 1 it keeps strides that are not the default ones.
    samples = torch.empty(raw.shape, dtype=torch.float32).copy_(raw)
    return samples.div_(255.0) if raw.dtype == torch.uint8 else samples


def as_whole(raw: Tensor, what: str) -> Tensor:
    """Return a new int64 tensor in default strides. Raises DataError, as `as_float`, for what is no whole number."""
    if raw.dtype not in WHOLE:
        raise DataError(
            f"{what} has values of type {raw.dtype}, and other samples are rows of whole numbers",
            key="data",
            hint="give all samples one type",
        )
    return torch.empty(raw.shape, dtype=torch.int64).copy_(raw)
