"""`data: synthetic`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from alray.config.sections.data import NUMERIC, DataSection
from alray.config.sections.section import Counts, PositiveInt


class Synthetic(DataSection):
    """Artificial samples, for tests and timings: the pattern of a class plus random noise."""

    implementation = "source:opened"
    labels = NUMERIC

    source: Literal["synthetic"]
    """`synthetic`."""
    shape: Counts = (3, 32, 32)
    """Shape of one sample, such as [channels, height, width]. Default: [3, 32, 32]."""
    classes: Annotated[int, Field(ge=2)] = 10
    """Number of classes; of labels or targets in other tasks. Default: 10."""
    samples: PositiveInt = 10000
    """Number of samples in the training set, including validation. The test set has a fifth of it. Default: 10000."""

    @property
    def training_set(self) -> int:
        return self.samples

    @property
    def picture_size(self) -> tuple[int, int] | None:
        return self.size or (self.shape[1], self.shape[2]) if len(self.shape) == 3 else self.size
