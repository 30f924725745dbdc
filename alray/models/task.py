"""The interface of a task: the labels, the loss, what Associated Learning encodes, and the metric."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy
import torch
from torch import Tensor, nn
from torch.nn import functional

from alray.config.made import Load, class_of, making, no_user_code
from alray.config.sections.section import listed
from alray.config.sections.task import TASKS, OwnTask, TaskSection
from alray.config.user_code import own_place
from alray.core.errors import SpecError
from alray.core.metric import Metric
from alray.models.shape import Shape

Label = int | Tensor
"""The label of one sample: the number of its class, or a tensor of `label_shape`."""

Measured = Callable[[Tensor, Tensor], Tensor]
"""`LearningTask.measured`: computes what a metric needs from scores and labels."""


class Tally(ABC):
    """Computes the metric of a set of samples, whose scores are given in any number of parts."""

    lack: str = "no sample"
    """What the outputs in `undefined` have, in words."""
    instead: str = "left out of"
    """What becomes of them in the metric, in words before its title."""

    def __init__(self) -> None:
        self.samples = 0

    def take(self, scores: Tensor, labels: Tensor) -> None:
        """Add a part.

        Args:
            scores: [N, width], on any device; where the task needs less, what `LearningTask.measured` makes of them.
            labels: as the data gives them, on the CPU.
        """
        self.samples += len(labels)
        self._take(scores, labels)

    @abstractmethod
    def _take(self, scores: Tensor, labels: Tensor) -> None: ...

    @abstractmethod
    def value(self) -> float | None:
        """The metric of all samples taken so far, at least one; None: it is not defined for them."""

    @property
    def undefined(self) -> Sequence[int]:
        """The numbers of the classes, labels or targets for which these samples do not define the metric."""
        return ()

    @property
    def further(self) -> Mapping[str, float | None]:
        """Further metrics of these samples, by name. They choose nothing."""
        return {}


class WholeTally(Tally):
    """Keeps the scores of all samples, for a metric that is no sum over samples. That takes 8 bytes for each number."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[tuple[Tensor, Tensor]] = []

    def _take(self, scores: Tensor, labels: Tensor) -> None:
        self._parts.append((scores.cpu().double(), labels.double()))

    def value(self) -> float | None:
        scores, labels = (torch.cat(parts) for parts in zip(*self._parts, strict=True))
        return self.metric_of(scores, labels)

    @abstractmethod
    def metric_of(self, scores: Tensor, labels: Tensor) -> float | None:
        """The metric of these scores and labels, [samples, width] float64 each; None: it is not defined for them."""

    @property
    def undefined(self) -> Sequence[int]:
        labels = torch.cat([labels for _, labels in self._parts])
        return torch.nonzero(~self.defined_for(labels)).flatten().tolist()

    def defined_for(self, labels: Tensor) -> Tensor:
        """Which outputs the metric is defined for, [width] bool.

        Args:
            labels: [samples, width] float64.
        """
        return torch.ones(labels.shape[1:], dtype=torch.bool)


class Prediction(Protocol):
    """What a network says of one input: a dataclass, whose text is for people and whose fields are for JSON."""

    @property
    def input(self) -> str: ...

    @property
    def depth(self) -> int: ...

    __dataclass_fields__: ClassVar[dict[str, Any]]


@dataclass(frozen=True)
class ClassPrediction:
    """The prediction for one input. `score` is the share of the label, in 0..1 (`LearningTask.shares`)."""

    input: str
    label: str
    class_index: int
    score: float
    depth: int

    def __str__(self) -> str:
        return f"{self.label} ({self.score:.4f})"


@dataclass(frozen=True)
class ValuesPrediction:
    """The prediction of numbers for one input: the value of each target, by its name."""

    input: str
    values: dict[str, float]
    depth: int

    def __str__(self) -> str:
        return ", ".join(f"{name} {_digits(value)}" for name, value in self.values.items())


def _digits(value: float) -> str:
    """A value in as many digits as tell it from its neighbours in float32; in ten, if it has more than float32."""
    rounded = numpy.float32(value)
    return repr(float(str(rounded))) if float(rounded) == value else f"{value:.10g}"


class LearningTask(ABC):
    """What a network learns. A method asks it for the loss; the data, for the form of its labels.

    A label is the number of a class, unless a task says otherwise.
    """

    loss_name: str = "loss"
    """The name of the loss in records."""
    metrics: ClassVar[tuple[str, ...]] = ()
    """Of a task of the user: the metrics that it can measure, such as `cost`. `self.metric.name` is the one that the
    spec asks for."""
    gives_shares = False
    """Whether scores of classes or labels are their shares (`Method.gives_shares`); the network sets it."""
    by_position: bool = False
    """Whether each position of a sequence or pixel has a label, so that the readout gives scores for each."""
    takes_any_label: ClassVar[bool] = False
    """Whether the data say the shape of labels."""
    compares_labels: ClassVar[bool] = False
    """Whether the loss takes labels as the data give them alone, and not as they are encoded."""
    ignores: bool = False
    """Whether a position may have no class. What `encoded` gives for it is not a number."""

    def __init__(self, section: TaskSection, width: int, sample: tuple[int, ...] = ()) -> None:
        """
        Args:
            width: of a readout, the number of classes, labels or targets.
            sample: shape of one sample.
        """
        self.section = section
        self.width = width
        self.sample = tuple(sample)
        self.labels = sample.labels if isinstance(sample, Shape) else None
        """The shape of a label, where the data say it."""
        self._of_model: tuple[int, ...] | None = None
        self.metric: Metric = section.measures

    @property
    def label_shape(self) -> tuple[int, ...]:
        """Shape of the label of one sample."""
        return ()

    @property
    def label_dtype(self) -> torch.dtype:
        """Type of the labels as the data gives them."""
        return torch.int64

    @property
    def target_shape(self) -> tuple[int, ...]:
        """Shape of the label of one sample in a mini-batch of training."""
        return self.label_shape

    @property
    def target_dtype(self) -> torch.dtype:
        """Type of the labels in a mini-batch of training."""
        return self.label_dtype

    @property
    def score_shape(self) -> tuple[int, ...]:
        """Shape of the scores of one sample."""
        return self.readout_shape if self._of_model is None else self._of_model

    @property
    def readout_shape(self) -> tuple[int, ...]:
        """Shape of the scores of one sample that a readout of a method gives."""
        return (self.width,)

    def of_outputs(self, outputs: tuple[int, ...], *, by_model: bool) -> None:
        """Take note of what the model of the user gives for a sample.

        Args:
            by_model: whether its scores are those of the method, and not a readout's.
        """
        if by_model:
            self._of_model = outputs

    def suits(self, outputs: tuple[int, ...]) -> bool:
        """Whether a model that gives this for a sample can be scored."""
        return outputs == self.readout_shape

    @abstractmethod
    def loss(self, scores: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
        """The mean loss of a mini-batch, a scalar.

        Args:
            scores: [N, width].
            target: labels as the data gives them, or as `encoded` makes them.
            label_smoothing: 0 for all tasks but classification.
        """

    def of_mixed_samples(self) -> LearningTask:
        """The task whose label in training is the share of each class of a mixed sample, [width] (`data.mix`).
        Only classification has it.

        Raises:
            SpecError: this task has no classes to mix.
        """
        raise SpecError("`data.mix` mixes classes, and this task has none", key="data.mix", hint="leave it out")

    def in_training(self, labels: Tensor) -> Tensor:
        """Labels of a mini-batch as its losses take them, `[N, *target_shape]`.

        Args:
            labels: as the data gives them.
        """
        return labels

    def of_weighted_samples(self) -> LearningTask:
        """The task whose label in training is the class of a sample and its weight, [2] (`task.class_weights`). Only
        classification has it.

        Raises:
            SpecError: this task has no classes to weigh.
        """
        hint = "leave it out"
        raise SpecError("it weighs classes, and this task has none", key="task.class_weights", hint=hint)

    def encoded(self, labels: Tensor, dtype: torch.dtype) -> Tensor:
        """The labels as Associated Learning encodes them: t_0, [N, width], classes one-hot; of tokens their
        numbers."""
        return (labels if self.label_shape else functional.one_hot(labels, self.width)).to(dtype)

    def first_label_encoder(self, dim: int) -> nn.Module:
        """The layer of the first component's label encoder, from t_0 to `dim` values."""
        return nn.Linear(self.width, dim)

    @property
    def measured_shape(self) -> tuple[int, ...]:
        """Shape of what `measured` gives for one sample."""
        return self.score_shape

    def measured(self, scores: Tensor, labels: Tensor) -> Tensor:
        """The part of the scores that the metric needs, `[N, *measured_shape]`: all, unless a task says otherwise.

        Where it is less than the scores, the stage that has them takes it, and only this travels.

        Args:
            labels: as the data gives them, on any device.
        """
        return scores

    @abstractmethod
    def tally(self) -> Tally:
        """A new tally of the metric."""

    def chance(self, labels: Tensor | None) -> float | None:
        """The metric of a network that gives all samples the same scores, as the labels of training suggest them; None
        where it is not known.

        Args:
            labels: of the training split, as the source gives them; of a text, its tokens. None: they are known only
                when samples are read.
        """
        return None

    # --- The labels of a source ---

    def read(self, label: object) -> Label | None:
        """The label of a sample as a user's source gives it; None if it is none."""
        try:
            return operator.index(label)  # type: ignore[arg-type]  # its type is checked here
        except TypeError:
            return None

    def collated(self, labels: Sequence[Label]) -> Tensor:
        """The labels of a mini-batch, [N, *label_shape]."""
        return torch.tensor(labels, dtype=torch.int64)

    def fits(self, labels: Tensor) -> Tensor:
        """Which of these labels, [N, ...], are valid: [N] bool."""
        if labels.dtype != torch.int64 or labels.ndim != 1:
            return torch.zeros(len(labels), dtype=torch.bool)
        return (labels >= 0) & (labels < self.width)

    @property
    def wants(self) -> str:
        """How a source gives the label of one sample, for messages."""
        return f"use labels from 0 to {self.width - 1}"

    # --- Predictions ---

    def shares(self, scores: Tensor) -> Tensor:
        """What a prediction says of each class, [..., width] float64 in 0..1: the softmax of the scores. Where the
        method gives shares, it is the scores, limited to 0..1, over their sum; all are 0 where no score is above 0.

        Args:
            scores: [..., width].

        Raises:
            RequestError: the targets of a regression have no shares.
        """
        if not self.gives_shares:
            return torch.softmax(scores.double(), -1)
        shares = scores.double().clamp(0, 1)
        total = shares.sum(-1, keepdim=True)
        return shares / torch.where(total == 0, 1, total)

    def prediction(self, given: str, scores: Tensor, names: Sequence[str], depth: int) -> Prediction:
        """What the route of this depth says of the input `given`.

        Args:
            scores: [width], of a regression in the units of the targets.
            names: of the classes, labels or targets.
        """
        best = int(scores.argmax())
        return ClassPrediction(given, names[best], best, float(self.shares(scores)[best]), depth)


class VectorTask(LearningTask):
    """A task whose label is one number for each output: any finite one, unless a task says otherwise."""

    @property
    def label_shape(self) -> tuple[int, ...]:
        return (self.width,)

    @property
    def label_dtype(self) -> torch.dtype:
        return torch.float32

    def read(self, label: object) -> Tensor | None:
        try:
            # A target is rounded to float32 only when it is standardised.
            vector = torch.as_tensor(label, dtype=label.dtype if isinstance(label, Tensor) else torch.float64)
        except (TypeError, ValueError, RuntimeError):
            return None
        if vector.dtype != torch.float64:
            vector = vector.to(torch.float32)
        if vector.ndim == 0 and self.width == 1:
            vector = vector.reshape(1)
        return vector if tuple(vector.shape) == self.label_shape else None

    def collated(self, labels: Sequence[Label]) -> Tensor:
        return torch.stack([torch.as_tensor(label) for label in labels])

    def of_means(self, labels: Tensor | None) -> float | None:
        """The metric of a network that gives the mean of each output. As `chance`, for tasks whose metric is known: one
        of a user's may not take such scores."""
        if labels is None or not self.fits(labels).all():
            return None
        tally = self.tally()
        tally.take(labels.double().mean(0).expand(labels.shape), labels)
        return tally.value()

    def fits(self, labels: Tensor) -> Tensor:
        if labels.shape[1:] != self.label_shape or not labels.is_floating_point():
            return torch.zeros(len(labels), dtype=torch.bool)
        return self._numbers_fit(labels).all(1)

    def _numbers_fit(self, labels: Tensor) -> Tensor:
        """Which numbers are valid: [N, width] -> [N, width] bool."""
        return labels.isfinite()

    @property
    def wants(self) -> str:
        return "give a finite number" if self.width == 1 else f"give {self.width} finite numbers"

    def prediction(self, given: str, scores: Tensor, names: Sequence[str], depth: int) -> Prediction:
        return ValuesPrediction(given, dict(zip(names, map(float, scores), strict=True)), depth)


def make_task(
    section: TaskSection, width: int, sample: tuple[int, ...] = (), load: Load = no_user_code
) -> LearningTask:
    """The task of a spec.

    Args:
        width: the number of classes, labels, targets or tokens.
        sample: shape of one sample.
        load: loads the class of a task of the user.

    Raises:
        SpecError: if a task of the user cannot be made.
    """
    kind: type[LearningTask] = class_of(TASKS, section, LearningTask, load, key="task.kind")
    if not isinstance(section, OwnTask):
        return kind(section, width, sample)
    known = kind.metrics if isinstance(kind.metrics, tuple | list) else ()
    if section.metric not in known:
        raise SpecError(
            f"task `{section.kind}` does not measure {section.metric}",
            key="task.metric",
            hint=f"choose {listed(known)}" if known else "list what it measures in the class's `metrics`",
        )
    called = "it is called as Class(section, width, sample, **fields) with the further keys of the section `task`"
    with making(f"task `{section.kind}`", called, key="task", kind=kind):
        made = kind(section, width, sample, **section.fields)
    if not hasattr(made, "metric"):
        file, line = own_place(kind.__init__) or (None, None)
        raise SpecError(
            f"the constructor of task `{section.kind}` does not call that of alray.Task",
            file=file,
            line=line,
            key="task.kind",
            hint="begin it with super().__init__(section, width, sample)",
        )
    return made
