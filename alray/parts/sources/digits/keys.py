"""`data: digits`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.data import DataSection


class Digits(DataSection):
    """The 1,797 handwritten digits of scikit-learn: 1 x 8 x 8 pixels, 10 classes, no download.

    The test set is fixed: 360 of them.
    """

    implementation = "source:opened"

    source: Literal["digits"]
    """`digits`."""

    @property
    def training_set(self) -> int:
        return 1437

    @property
    def picture_size(self) -> tuple[int, int]:
        return self.size or (8, 8)
