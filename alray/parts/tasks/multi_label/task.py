"""Multi-label classification: each sample has any number of several labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from alray.models.task import Tally, VectorTask, WholeTally


@dataclass(frozen=True)
class LabelsPrediction:
    """The prediction for one input.

    Attributes:
        scores: the probability of each label, in 0..1.
        labels: those of at least 0.5.
    """

    input: str
    labels: list[str]
    scores: dict[str, float]
    depth: int

    def __str__(self) -> str:
        return ", ".join(f"{label} ({self.scores[label]:.4f})" for label in self.labels) or "none of the labels"


class MultiLabelTask(VectorTask):
    """Binary cross-entropy of each label's score; mean average precision. A label is 0 or 1 for each of them, and so is
    t_0."""

    loss_name = "binary_cross_entropy"

    def loss(self, scores: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
        assert label_smoothing == 0.0, "refused for this task"
        return functional.binary_cross_entropy_with_logits(scores, target.to(scores.dtype))

    def tally(self) -> Tally:
        return _MeanAveragePrecision()

    def chance(self, labels: Tensor | None) -> float | None:
        return self.of_means(labels)

    def _numbers_fit(self, labels: Tensor) -> Tensor:
        return (labels == 0) | (labels == 1)

    @property
    def wants(self) -> str:
        return f"give 0 or 1 for each of {self.width} labels"

    def shares(self, scores: Tensor) -> Tensor:
        """The share of each label: the sigmoid of its score, or the score, limited to 0..1."""
        return scores.double().clamp(0, 1) if self.gives_shares else torch.sigmoid(scores.double())

    def prediction(self, given: str, scores: Tensor, names: Sequence[str], depth: int) -> LabelsPrediction:
        scored = dict(zip(names, self.shares(scores).tolist(), strict=True))
        found = [name for name, share in scored.items() if share >= 0.5]
        return LabelsPrediction(given, found, scored, depth)


class _MeanAveragePrecision(WholeTally):
    def metric_of(self, scores: Tensor, labels: Tensor) -> float | None:
        return mean_average_precision(scores, labels)

    def defined_for(self, labels: Tensor) -> Tensor:
        return labels.any(0)


def mean_average_precision(scores: Tensor, labels: Tensor) -> float | None:
    """The mean of the average precisions of the labels that a sample has; None if there is none.

    Args:
        scores, labels: [samples, labels]; a label is 0 or 1. A score that is not a number ranks last.
    """
    found = [_average_precision(*each) for each in zip(scores.T, labels.T, strict=True) if each[1].any()]
    return sum(found) / len(found) if found else None


def _average_precision(scores: Tensor, labels: Tensor) -> float:
    """The sum over thresholds of precision times the growth of recall; samples of one score share a threshold. A sample
    has the label."""
    ranked, order = scores.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf).sort(descending=True)
    found = labels[order].cumsum(0)
    last = torch.cat([ranked[1:] != ranked[:-1], torch.ones(1, dtype=torch.bool)])  # of each threshold
    above = torch.arange(1, len(ranked) + 1, dtype=torch.float64)[last]
    found = found[last]
    grown = found.diff(prepend=torch.zeros(1, dtype=found.dtype))
    return float((found / above * grown).sum() / labels.sum())
