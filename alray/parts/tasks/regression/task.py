"""Regression: each sample has one or more numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from alray.config.sections.task import TaskSection
from alray.core.errors import RequestError
from alray.models.task import Tally, VectorTask, WholeTally
from alray.parts.tasks.regression.keys import Regression


class RegressionTask(VectorTask):
    """Squared or absolute error of each target; R² or an error. t_0 is the targets."""

    def __init__(self, section: TaskSection, width: int, sample: tuple[int, ...] = ()) -> None:
        super().__init__(section, width, sample)
        self.loss_name = cast("Regression", section).loss

    def loss(self, scores: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
        assert label_smoothing == 0.0, "refused for this task"
        target = target.to(scores.dtype)
        if self.loss_name == "absolute_error":
            return functional.l1_loss(scores, target)
        return functional.mse_loss(scores, target)

    def tally(self) -> Tally:
        return _Errors(_METRICS[self.metric.name])

    def chance(self, labels: Tensor | None) -> float | None:
        return 0.0 if self.metric.name == "r2" else super().chance(labels)

    def shares(self, scores: Tensor) -> Tensor:
        raise RequestError("the network predicts numbers, and these have no shares")


class _Errors(WholeTally):
    def __init__(self, metric: Callable[[Tensor, Tensor], float]) -> None:
        super().__init__()
        self._metric = metric

    def metric_of(self, scores: Tensor, labels: Tensor) -> float:
        return self._metric(scores, labels)


def r2(predicted: Tensor, targets: Tensor) -> float:
    """The mean over the targets of 1 - residual / spread, the sums of squares about the prediction and the mean.

    Args:
        predicted, targets: [samples, targets]. Of a target that is the same for all samples it is 1 where it is
            predicted exactly, else 0.
    """
    residual = (targets - predicted).square().sum(0)
    spread = (targets - targets.mean(0)).square().sum(0)
    constant = torch.where(residual == 0, 1.0, torch.zeros_like(residual))
    return float(torch.where(spread == 0, constant, 1.0 - residual / spread).mean())


def mean_squared_error(predicted: Tensor, targets: Tensor) -> float:
    """
    Args:
        predicted, targets: [samples, targets].
    """
    return float((predicted - targets).square().mean())


def mean_absolute_error(predicted: Tensor, targets: Tensor) -> float:
    """
    Args:
        predicted, targets: [samples, targets].
    """
    return float((predicted - targets).abs().mean())


_METRICS: dict[str, Callable[[Tensor, Tensor], float]] = {
    "r2": r2,
    "mean_squared_error": mean_squared_error,
    "mean_absolute_error": mean_absolute_error,
}
