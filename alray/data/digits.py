"""The handwritten digits of scikit-learn: 1,797 pictures of 1 x 8 x 8 pixels, ten classes, no download."""

from __future__ import annotations

import torch

from alray.data.picture import Picture, resize
from alray.data.source import Normalisation, Source, SplitName, TensorSet

NUM_TEST = 360
# Not the seed of a run, so that every run is tested on the same samples.
TEST_SPLIT_SEED = 0
LARGEST_VALUE = 16.0


class Digits(Source):
    """The values 0..16 (0 is paper, 16 is ink) are scaled to -1..1. There are 1,437 training samples.

    The test split of 360 samples is stratified by class. It does not depend on the seed of a run.
    """

    normalisation = Normalisation(mean=(0.5,), std=(0.5,))

    def __init__(self, *, image_size: int | None = None) -> None:
        """image_size: height and width after resizing, in pixels; None keeps 8."""
        self._size = 8 if image_size is None else image_size
        # A picture of a digit (light ink on dark paper, as in the training data) is first resized to 8 x 8.
        self.picture = Picture((1, 8, 8), (self._size, self._size), as_float=True)

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(str(digit) for digit in range(10))

    def open(self, split: SplitName) -> TensorSet:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        bunch = load_digits()
        train, test = train_test_split(
            range(len(bunch.target)),
            test_size=NUM_TEST,
            random_state=TEST_SPLIT_SEED,
            shuffle=True,
            stratify=bunch.target,
        )
        chosen = sorted(train if split == "train" else test)
        images = torch.from_numpy(bunch.images[chosen]).to(torch.float32).div_(LARGEST_VALUE).unsqueeze(1)
        labels = torch.from_numpy(bunch.target[chosen]).to(torch.int64)
        return TensorSet(resize(images, (self._size, self._size)), labels)
