"""Classification: each sample has one of several classes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from alray.models.class_counts import OF_COUNTS, ClassCounts
from alray.models.task import LearningTask, Tally


class ClassificationTask(LearningTask):
    """Cross-entropy of class scores; accuracy, balanced accuracy or F1. A label is the number of a class, and t_0 is
    one-hot."""

    loss_name = "cross_entropy"

    def of_mixed_samples(self) -> LearningTask:
        return MixedClassificationTask(self.section, self.width, self.sample)

    def of_weighted_samples(self) -> LearningTask:
        return WeightedClassificationTask(self.section, self.width, self.sample)

    def loss(self, scores: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
        return functional.cross_entropy(scores, target, label_smoothing=label_smoothing)

    def tally(self) -> Tally:
        return _Counts(self.metric.name, self.width)

    def chance(self, labels: Tensor | None) -> float | None:
        """The metric of the most frequent class for all samples; of unknown labels each class has as many."""
        every = torch.arange(self.width) if labels is None or not self.fits(labels).all() else labels
        samples = every.bincount(minlength=self.width)
        most = functional.one_hot(samples.argmax(), self.width)
        return OF_COUNTS[self.metric.name](most * samples, samples, most * len(every))


class MixedClassificationTask(ClassificationTask):
    """Classification of mixed samples: in training a label is the share of each class, [classes] (`data.mix`)."""

    @property
    def target_shape(self) -> tuple[int, ...]:
        return (self.width,)

    @property
    def target_dtype(self) -> torch.dtype:
        return torch.float32

    def loss(self, scores: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
        return super().loss(scores, target.to(scores.dtype), label_smoothing)

    def encoded(self, labels: Tensor, dtype: torch.dtype) -> Tensor:
        return labels.to(dtype)


class WeightedClassificationTask(ClassificationTask):
    """Classification of weighted samples: in training a label is the number of a class and the weight of the sample,
    [2] (`task.class_weights`).

    The data divides the weight of each sample's class by the mean weight of its mini-batch. So the mean over samples is
    the mean weighted by classes, whatever part of the mini-batch a micro-batch or a replica has. Without label
    smoothing it is what `torch.nn.CrossEntropyLoss(weight=...)` gives for the mini-batch.
    """

    @property
    def target_shape(self) -> tuple[int, ...]:
        return (2,)

    @property
    def target_dtype(self) -> torch.dtype:
        return torch.float64

    def loss(self, scores: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
        classes, weights = target.unbind(1)
        losses = functional.cross_entropy(scores, classes.long(), label_smoothing=label_smoothing, reduction="none")
        return (losses * weights.to(losses.dtype)).mean()


class _Counts(ClassCounts):
    """Scores of which one is not a number predict no class."""

    def _take(self, scores: Tensor, labels: Tensor) -> None:
        self.count(scores.argmax(1).cpu(), ~scores.isnan().any(1).cpu(), labels)
