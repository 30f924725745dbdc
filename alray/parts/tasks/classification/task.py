"""Classification: each sample has one of several classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

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
        return _METRICS[self.metric.name](most * samples, samples, most * len(every))


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


class _Counts(Tally):
    """Counts for each class its samples, the predictions of it, and those that are right. Scores of which one is not a
    number predict no class."""

    def __init__(self, metric: str, classes: int) -> None:
        super().__init__()
        self._metric = metric
        if metric == "macro_f1":
            self.instead = "0, where predicted, in"
        self._of_classes, self._predicted, self._right = torch.zeros(3, classes, dtype=torch.int64)

    def _take(self, scores: Tensor, labels: Tensor) -> None:
        numbers = ~scores.isnan().any(1).cpu()
        predicted, classes = scores.argmax(1).cpu(), len(self._right)
        self._of_classes += labels.bincount(minlength=classes)
        self._predicted += predicted[numbers].bincount(minlength=classes)
        self._right += labels[numbers & (predicted == labels)].bincount(minlength=classes)

    def value(self) -> float:
        return _METRICS[self._metric](self._right, self._of_classes, self._predicted)

    @property
    def undefined(self) -> Sequence[int]:
        if self._metric == "accuracy":
            return ()
        return torch.nonzero(self._of_classes == 0).flatten().tolist()


OfCounts = Callable[[Tensor, Tensor, Tensor], float]
"""From the right predictions of each class, its samples and all predictions of it, [classes] int64 each."""


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


_METRICS: dict[str, OfCounts] = {"accuracy": accuracy, "balanced_accuracy": balanced_accuracy, "macro_f1": macro_f1}
