"""Classification: each sample has one of several classes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from alray.models.task import Label, LearningTask, Tally


@dataclass(frozen=True)
class ClassPrediction:
    """The prediction for one input. `score` is the softmax of the class scores at the label, in 0..1."""

    input: str
    label: str
    class_index: int
    score: float
    depth: int

    def __str__(self) -> str:
        return f"{self.label} ({self.score:.4f})"


class ClassificationTask(LearningTask):
    """Cross-entropy of class scores; accuracy. A label is the number of a class, and t_0 is one-hot."""

    loss_name = "cross_entropy"

    @property
    def label_shape(self) -> tuple[int, ...]:
        return ()

    @property
    def label_dtype(self) -> torch.dtype:
        return torch.int64

    def of_mixed_samples(self) -> LearningTask:
        return MixedClassificationTask(self.section, self.width, self.sample)

    def loss(self, scores: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
        return functional.cross_entropy(scores, target, label_smoothing=label_smoothing)

    def encoded(self, labels: Tensor, dtype: torch.dtype) -> Tensor:
        return functional.one_hot(labels, self.width).to(dtype)

    def tally(self) -> Tally:
        return _Right()

    def read(self, label: object) -> int | None:
        try:
            return operator.index(label)  # type: ignore[arg-type]  # its type is checked here
        except TypeError:
            return None

    def collated(self, labels: Sequence[Label]) -> Tensor:
        return torch.tensor(labels, dtype=torch.int64)

    def fits(self, labels: Tensor) -> Tensor:
        if labels.dtype != torch.int64 or labels.ndim != 1:
            return torch.zeros(len(labels), dtype=torch.bool)
        return (labels >= 0) & (labels < self.width)

    @property
    def wants(self) -> str:
        return f"use labels from 0 to {self.width - 1}"

    def prediction(self, given: str, scores: Tensor, names: Sequence[str], depth: int) -> ClassPrediction:
        shares = torch.softmax(scores.double(), 0)
        best = int(scores.argmax())
        return ClassPrediction(given, names[best], best, float(shares[best]), depth)


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


class _Right(Tally):
    def __init__(self) -> None:
        super().__init__()
        self._right = 0

    def _take(self, scores: Tensor, labels: Tensor) -> None:
        self._right += int((scores.argmax(1).cpu() == labels).sum())

    def value(self) -> float:
        return self._right / self.samples
