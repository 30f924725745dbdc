"""What a source of documents is: named classes, and for each split documents with labels, held in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from alray.data.source import SplitName
from alray.errors import DataError


@dataclass(frozen=True)
class TextSet:
    """Documents and the number of each one's class."""

    texts: Sequence[str]
    labels: Sequence[int]

    def __post_init__(self) -> None:
        """Raises DataError where the labels do not fit the documents."""
        if len(self.texts) != len(self.labels):
            raise DataError(
                f"{len(self.labels)} labels for {len(self.texts)} documents",
                key="data",
                mend="give one label for each document",
            )

    def __len__(self) -> int:
        return len(self.texts)


class TextSource(ABC):
    """Where documents come from. `open` gives them whole; the words are cut and counted by `alray.data.text_data`."""

    @property
    @abstractmethod
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; a label counts into them."""

    @abstractmethod
    def open(self, split: SplitName) -> TextSet | None:
        """The documents of a split; None where there is no test set. Raises DataError where data is missing."""
