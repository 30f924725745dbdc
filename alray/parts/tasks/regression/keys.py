"""`task: regression`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.task import TaskSection


class Regression(TaskSection):
    """Each sample has one or more numbers, its targets."""

    implementation = "task:RegressionTask"
    label = "numbers"

    kind: Literal["regression"]
    """`regression`."""
    loss: Literal["squared_error", "absolute_error"] = "squared_error"
    """Error that is minimised, the mean over samples and targets. Default: squared_error."""
    metric: Literal["r2", "mean_squared_error", "mean_absolute_error"] = "r2"
    """Metric of evaluations, in the units of the targets. The highest R² is the best, and the lowest error. Default:
    r2."""
    standardise: bool = True
    """Whether the network learns targets that are standardised, by the mean and the deviation that the source gives of
    each, if it does. Metrics and predictions stay in the targets' units. Default: true."""

    @property
    def standardises(self) -> bool:
        return self.standardise
