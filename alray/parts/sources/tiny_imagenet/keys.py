"""`data: tiny_imagenet`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.data import DataSection, resized
from alray.config.sections.expected import Expected
from alray.config.sections.section import InputFolder


class TinyImagenet(DataSection):
    """Tiny-ImageNet as in its archive: 3 x 64 x 64, 200 classes. The 10,000 validation images are the test set."""

    implementation = "source:opened"

    source: Literal["tiny_imagenet"]
    """`tiny_imagenet`."""
    root: InputFolder
    """Folder with `wnids.txt`, `train` and `val` (`tiny-imagenet-200` in the archive)."""

    @property
    def of_kind(self) -> Expected:
        return resized(Expected((3, 64, 64), 200, 100_000, 10_000), self.size)
