"""Sources whose test set is a random part of all documents."""

from __future__ import annotations

from functools import cached_property

import torch

from alray.data.source import SplitName, TextSet, TextSource, generator

TEST_SPLIT_SEED = 0
"""Not the seed of a run, so that every run is tested on the same documents."""


def divided(num_documents: int, test_fraction: float, purpose: str) -> dict[SplitName, list[int]]:
    """Return the indices of the training and of the test set, sorted: random parts by a seed that never changes.

    The same number, share and purpose give the same parts.

    Args:
        purpose: of the draw.
    """
    order = torch.randperm(num_documents, generator=generator(TEST_SPLIT_SEED, purpose)).tolist()
    num_test = round(num_documents * test_fraction)
    return {"test": sorted(order[:num_test]), "train": sorted(order[num_test:])}


class Redivided(TextSource):
    """A source whose training and test documents are put together and divided anew.

    The thesis divides IMDb in this way: a random fifth of all 50,000 reviews is the test set. Its public code
    (`load_raw_data` in `utils.py`) draws that fifth without a seed, so nobody can draw it again; this one is another.
    """

    def __init__(self, source: TextSource, test_fraction: float) -> None:
        """
        Args:
            test_fraction: share in 0..1 of all documents that is the test set.
        """
        self._source = source
        self._test_fraction = test_fraction

    @property
    def classes(self) -> tuple[str, ...]:
        return self._source.classes

    def open(self, split: SplitName) -> TextSet:
        chosen = divided(len(self._all), self._test_fraction, "test_fraction")[split]
        return TextSet([self._all.texts[i] for i in chosen], [self._all.labels[i] for i in chosen])

    @cached_property
    def _all(self) -> TextSet:
        opened = [found for found in (self._source.open("train"), self._source.open("test")) if found is not None]
        return TextSet(
            [text for part in opened for text in part.texts], [label for part in opened for label in part.labels]
        )


def redivided(source: TextSource, test_fraction: float | None) -> TextSource:
    """The source itself, or with another division into training and test set."""
    return source if test_fraction is None else Redivided(source, test_fraction)
