"""Sources whose test set is a random part of all documents."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from alray.data.division import drawn
from alray.data.source import SplitName, TextSet, TextSource

TEST_SPLIT_SEED = 0
"""Not the seed of a run, so that every run is tested on the same documents."""


class Divided(TextSource):
    """A source of documents, of which a fixed random share is the test set."""

    def __init__(self, read: Callable[[], TextSet], test_fraction: float, purpose: str) -> None:
        """
        Args:
            read: reads all documents.
            test_fraction: share in 0..1 of all documents that is the test set.
            purpose: of the draw. The same number of documents, share and purpose give the same parts.
        """
        self._read = read
        self._test_fraction = test_fraction
        self._purpose = purpose

    @cached_property
    def _documents(self) -> TextSet:
        return self._read()

    def open(self, split: SplitName) -> TextSet:
        whole = self._documents
        num_test = round(len(whole) * self._test_fraction)
        test, train = drawn(len(whole), (num_test, len(whole) - num_test), TEST_SPLIT_SEED, self._purpose)
        return whole.at((test if split == "test" else train).tolist())


class Redivided(Divided):
    """A source whose training and test documents are put together and divided anew.

    The thesis divides IMDb in this way: a random fifth of all 50,000 reviews is the test set. Its public code
    (`load_raw_data` in `utils.py`) draws that fifth without a seed, so nobody can draw it again; this one is another.
    """

    def __init__(self, source: TextSource, test_fraction: float) -> None:
        super().__init__(self._pooled, test_fraction, "test_fraction")
        self._source = source
        self.notes = source.notes
        self.classes = source.classes

    def _pooled(self) -> TextSet:
        opened = [found for found in (self._source.open("train"), self._source.open("test")) if found is not None]
        self.notes = self._source.notes
        return TextSet(
            [text for part in opened for text in part.texts], [label for part in opened for label in part.labels]
        )


def redivided(source: TextSource, test_fraction: float | None) -> TextSource:
    """The source itself, or with another division into training and test set."""
    return source if test_fraction is None else Redivided(source, test_fraction)
