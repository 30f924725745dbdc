"""The handwritten digits of scikit-learn: 1,797 pictures of 1 x 8 x 8 pixels, ten classes, no download."""

from __future__ import annotations

from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from alray.config.sections.task import TaskSection
from alray.core.errors import DataError
from alray.data.picture import Picture, resize
from alray.data.source import Normalisation, Source, SplitName, TensorSet
from alray.parts.sources.digits.keys import Digits

LARGEST_VALUE = 16.0
_FILE = "datasets/data/digits.csv.gz"  # one row for each sample: 64 pixels and the label
_TEST = files("alray.parts.sources.digits") / "digits_test.txt"


class DigitsSource(Source):
    """The values 0..16 (0 is paper, 16 is ink) are scaled to -1..1. There are 1,437 training samples.

    The test split of 360 samples is stratified by class. It does not depend on the seed of a run: the file
    `digits_test.txt` holds the numbers of its samples, drawn once by scikit-learn's `train_test_split` with
    `random_state=0`.
    """

    normalisation = Normalisation(mean=(0.5,), std=(0.5,))
    classes = tuple(map(str, range(10)))

    def __init__(self, *, size: tuple[int, int] | None = None) -> None:
        """
        Args:
            size: height and width after resizing, in pixels; None keeps 8 x 8.
        """
        self._size = size or (8, 8)
        # A picture of a digit (light ink on dark paper, as in the training data) is first resized to 8 x 8.
        self.picture = Picture((1, 8, 8), self._size, as_float=True)

    def open(self, split: SplitName) -> TensorSet:
        rows = np.loadtxt(_data_file(), delimiter=",")
        with _TEST.open(encoding="utf-8") as file:
            tested = np.isin(np.arange(len(rows)), [int(number) for line in file for number in line.split()])
        chosen = torch.from_numpy(rows[tested if split == "test" else ~tested])
        images = chosen[:, :-1].to(torch.float32).div_(LARGEST_VALUE).view(-1, 1, 8, 8)
        return TensorSet(resize(images, self._size), chosen[:, -1].to(torch.int64))


def _data_file() -> Path:
    """The file in the installed scikit-learn. It is not imported, because that takes a second."""
    package = find_spec("sklearn")
    for folder in package.submodule_search_locations or () if package is not None else ():
        if (Path(folder) / _FILE).is_file():
            return Path(folder) / _FILE
    raise DataError(
        f"scikit-learn is not installed, or it has no {_FILE}",
        key="data.source",
        hint="install scikit-learn, or choose another source",
    )


def opened(section: Digits, task: TaskSection) -> Source:
    """The source of a spec's section, the same for all tasks. `implementation` in keys.py names this function, and
    `alray.data.opening.make_source` calls it."""
    return DigitsSource(size=section.size)
