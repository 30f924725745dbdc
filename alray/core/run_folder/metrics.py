"""The metrics of evaluations by name, and which of two values of one is better."""

from __future__ import annotations

import math
from dataclasses import dataclass

SPLITS = ("train", "validation", "test")
"""The sets that an evaluation may measure."""


@dataclass(frozen=True)
class Metric:
    """A figure of an evaluation. Records, tables and figures show it under its own name."""

    name: str
    """In records and keys, such as `r2`."""
    title: str
    """In tables, figures and sentences."""
    lowest: bool = False
    """Whether the lowest value is the best."""
    share: bool = False
    """Whether it lies in 0..1."""

    def is_better(self, value: float | None, than: float | None) -> bool:
        """Whether a value is better than another one. A value that is missing or not a number is worse than all."""
        if value is None or math.isnan(value):
            return False
        if than is None or math.isnan(than):
            return True
        return value < than if self.lowest else value > than

    def reaches(self, value: float | None, bound: float) -> bool:
        """Whether a value is as good as a bound, or better."""
        return value == bound or self.is_better(value, bound)

    @property
    def heading(self) -> str:
        """The title with a capital letter."""
        return self.title[0].upper() + self.title[1:]

    @property
    def direction(self) -> str:
        """Which value is the best one."""
        return "lowest" if self.lowest else "highest"


ACCURACY = Metric("accuracy", "accuracy", share=True)
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        ACCURACY,
        Metric("mean_average_precision", "mean average precision", share=True),
        Metric("r2", "R²"),
        Metric("mean_squared_error", "mean squared error", lowest=True),
        Metric("mean_absolute_error", "mean absolute error", lowest=True),
        Metric("nats_per_token", "nats a token", lowest=True),
        Metric("perplexity", "perplexity", lowest=True),
        Metric("bits_per_byte", "bits a byte", lowest=True),
        Metric("top_1", "top-1", share=True),
        Metric("score", "score"),  # of a task of one's own, as is the next one
        Metric("cost", "cost", lowest=True),
    )
}
"""All metrics by name. `docs/writing_a_spec.md` defines them, and `alray.models.tasks` computes them."""
