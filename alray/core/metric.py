"""What an evaluation measures, and which of two values of it is better."""

from __future__ import annotations

import math
from dataclasses import dataclass

SPLITS = ("train", "validation", "test")
"""The sets that an evaluation may measure."""


@dataclass(frozen=True)
class Metric:
    """A figure of an evaluation. Records, tables and figures show it under its name."""

    name: str
    """In records and keys, such as `r2`."""
    title: str
    """In tables, figures and sentences."""
    lowest: bool = False
    """Whether the lowest value is the best."""
    share: bool = False
    """Whether it lies in 0..1."""

    def is_better(self, value: float | None, than: float | None) -> bool:
        """Whether a value is better than another one. A value that is missing or not finite is worse than all."""
        if value is None or not math.isfinite(value):
            return False
        if than is None or not math.isfinite(than):
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
