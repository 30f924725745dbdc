"""Documents in .txt files, one subfolder per class: the layout of IMDb's aclImdb."""

from __future__ import annotations

from pathlib import Path

from alray.data.class_folders import class_folders, require_files, require_known
from alray.data.source import SplitName, TextSet, TextSource
from alray.data.text_file import read_text

_UNLABELLED = "unsup"
"""IMDb's documents without a class."""


class TextFolder(TextSource):
    """A folder for training and, if there is one, a folder for the test; in each, one subfolder per class.

    The names of the training subfolders, sorted, are the classes. Every file *.txt right in a subfolder is a document,
    in sorted order; hidden files are passed over, and so is a subfolder `unsup`.
    """

    def __init__(self, *, train: Path, test: Path | None) -> None:
        self._folders: dict[SplitName, Path | None] = {"train": train, "test": test}
        self._classes = tuple(folder.name for folder in _subfolders(train, "data.train"))

    @property
    def classes(self) -> tuple[str, ...]:
        return self._classes

    def open(self, split: SplitName) -> TextSet | None:
        folder, key = self._folders[split], f"data.{split}"
        if folder is None:
            return None
        texts: list[str] = []
        labels: list[int] = []
        for subfolder in _subfolders(folder, key):
            label = require_known(subfolder, self._classes, key)
            found = [path for path in subfolder.glob("*.txt") if not path.name.startswith(".")]
            for path in require_files(found, subfolder, key, holding="documents (*.txt)"):
                texts.append(read_text(path))
                labels.append(label)
        return TextSet(texts, labels)


def _subfolders(folder: Path, key: str) -> list[Path]:
    return class_folders(folder, key, holding="documents (*.txt)", passed_over=(_UNLABELLED,))
