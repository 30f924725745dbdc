"""Classification of each position: tokens `[N, T]`, pixels `[N, H, W]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from alray.config.sections.task import TaskSection
from alray.models.class_counts import ClassCounts
from alray.models.own_loss import one_hot
from alray.models.task import Label, LearningTask, Tally, ValuesPrediction
from alray.parts.tasks.dense_classification.keys import DenseClassification


class DenseClassificationTask(LearningTask):
    """Cross-entropy of the scores of each position that has a class.

    A label is a class for each position, [*positions]. In training it has two numbers for each, [*positions, 2]: the
    class, and its weight, which is 0 for what is ignored, and else all positions of the mini-batch over those that have
    a class. So the mean over positions is the mean over those that have a class, whatever part of the mini-batch a
    micro-batch has. Scores have their classes last, as a readout gives them, or first, as convolutions do.
    """

    loss_name = "cross_entropy"
    by_position = True
    takes_any_label = True
    compares_labels = True
    ignores = True

    def __init__(self, section: TaskSection, width: int, sample: tuple[int, ...] = ()) -> None:
        super().__init__(section, width, sample)
        self.ignored = cast("DenseClassification", section).ignored

    @property
    def label_shape(self) -> tuple[int, ...]:
        return () if self.labels is None else tuple(self.labels)

    @property
    def target_shape(self) -> tuple[int, ...]:
        return (*self.label_shape, 2)

    @property
    def target_dtype(self) -> torch.dtype:
        return torch.float64

    @property
    def readout_shape(self) -> tuple[int, ...]:
        return (*self.label_shape, self.width)

    def suits(self, outputs: tuple[int, ...]) -> bool:
        return outputs in (self.readout_shape, (self.width, *self.label_shape))

    def in_training(self, labels: Tensor) -> Tensor:
        known = (labels != self.ignored).double()
        weights = known * (known.numel() / known.sum().clamp(min=1))
        return torch.stack([labels.double(), weights], -1)

    def loss(self, scores: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
        classes, weights = (target if target.is_floating_point() else self.in_training(target)).unbind(-1)
        losses = functional.cross_entropy(
            self._classes_second(scores),
            classes.long(),
            ignore_index=self.ignored,
            label_smoothing=label_smoothing,
            reduction="none",
        )
        return (losses * weights.to(losses.dtype)).mean()

    def _classes_second(self, scores: Tensor) -> Tensor:
        """`[N, classes, *positions]`."""
        return scores.movedim(-1, 1) if tuple(scores.shape[1:]) == self.readout_shape else scores

    def encoded(self, labels: Tensor, dtype: torch.dtype) -> Tensor:
        """One-hot classes, and not a number where a position is ignored: `[N, *positions, classes]`."""
        classes = labels[..., 0].long() if labels.is_floating_point() else labels
        return one_hot(classes.where(classes != self.ignored, -1), self.width, dtype)

    @property
    def measured_shape(self) -> tuple[int, ...]:
        return self.label_shape

    def measured(self, scores: Tensor, labels: Tensor) -> Tensor:
        """The class of the highest score of each position; not a number where a score is not."""
        classes = self._classes_second(scores)
        return classes.argmax(1).to(scores.dtype).masked_fill(classes.isnan().any(1), torch.nan)

    def tally(self) -> Tally:
        return _Counts(self.metric.name, self.width, self.ignored)

    def chance(self, labels: Tensor | None) -> float | None:
        """The metric of the most frequent class for all positions."""
        if labels is None or not self.fits(labels).all():
            return None
        classes = labels[labels != self.ignored]
        tally = self.tally()
        most = classes.mode().values if len(classes) else torch.zeros(())
        tally.take(most.double().expand(labels.shape), labels)
        return tally.value()

    def read(self, label: object) -> Label | None:
        try:
            found = torch.as_tensor(label)
        except (TypeError, ValueError, RuntimeError):
            return None
        if found.is_floating_point() or found.ndim == 0 or tuple(found.shape) != (self.label_shape or found.shape):
            return None
        return found.to(torch.int64)

    def collated(self, labels: Sequence[Label]) -> Tensor:
        return torch.stack([torch.as_tensor(label) for label in labels])

    def fits(self, labels: Tensor) -> Tensor:
        if labels.dtype != torch.int64 or tuple(labels.shape[1:]) != self.label_shape:
            return torch.zeros(len(labels), dtype=torch.bool)
        known = (labels >= 0) & (labels < self.width)
        return (known | (labels == self.ignored)).flatten(1).all(1)

    @property
    def wants(self) -> str:
        shape = list(self.label_shape) or "the positions of the scores"
        return f"give {shape} whole numbers from 0 to {self.width - 1}, or {self.ignored} where there is no class"

    def prediction(self, given: str, scores: Tensor, names: Sequence[str], depth: int) -> ValuesPrediction:
        found = self.measured(scores.unsqueeze(0), scores).long().flatten()
        return ValuesPrediction(given, {f"{number}": float(each) for number, each in enumerate(found)}, depth)


class _Counts(ClassCounts):
    """Of the class that `measured` gives for each position; it is none where that is not a number."""

    def __init__(self, metric: str, classes: int, ignored: int) -> None:
        super().__init__(metric, classes)
        self._ignored = ignored

    def _take(self, scores: Tensor, labels: Tensor) -> None:
        with_class = labels != self._ignored
        predicted = scores.cpu()[with_class]
        known = ~predicted.isnan()
        self.count(predicted.nan_to_num(nan=-1).long(), known, labels[with_class])
