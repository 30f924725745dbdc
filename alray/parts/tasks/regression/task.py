"""Regression: each sample has one or more numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

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
        return _R2() if self.metric.name == "r2" else _Errors(_ERRORS[self.metric.name])

    def chance(self, labels: Tensor | None) -> float | None:
        return 0.0 if self.metric.name == "r2" else self.of_means(labels)

    def shares(self, scores: Tensor) -> Tensor:
        raise RequestError("the network predicts numbers, and these have no shares")


class _Errors(WholeTally):
    def __init__(self, metric: Callable[[Tensor, Tensor], float]) -> None:
        super().__init__()
        self._metric = metric

    def metric_of(self, scores: Tensor, labels: Tensor) -> float:
        return self._metric(scores, labels)


class _R2(WholeTally):
    lack = "one value"

    def metric_of(self, scores: Tensor, labels: Tensor) -> float | None:
        return r2(scores, labels)

    def defined_for(self, labels: Tensor) -> Tensor:
        return _vary(labels)


def _vary(targets: Tensor) -> Tensor:
    """Which targets of [samples, targets] have more than one value, [targets] bool."""
    return (targets != targets[0]).any(0)


def r2(predicted: Tensor, targets: Tensor) -> float | None:
    """The mean of 1 - residual / spread, the sums of squares about the prediction and the mean, over the targets that
    are not equal for all samples; None if there is none.

    Args:
        predicted, targets: [samples, targets].
    """
    vary = _vary(targets)
    residual = (targets - predicted).square().sum(0)
    spread = (targets - targets.mean(0)).square().sum(0)
    return float((1.0 - residual / spread)[vary].mean()) if vary.any() else None


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


_ERRORS: dict[str, Callable[[Tensor, Tensor], float]] = {
    "mean_squared_error": mean_squared_error,
    "mean_absolute_error": mean_absolute_error,
}
