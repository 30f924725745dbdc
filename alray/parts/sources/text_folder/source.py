"""Documents in .txt files, with one subfolder for each class. IMDb's aclImdb has this layout."""

from __future__ import annotations

from pathlib import Path

from alray.config.sections.task import TaskSection
from alray.data.class_folders import class_folders, class_of, is_hidden, left_out, require_files, require_known
from alray.data.redivided import redivided
from alray.data.source import SplitName, TextSet, TextSource
from alray.data.text_file import read_text
from alray.parts.sources.text_folder.keys import TextFolder

_UNLABELLED = "unsup"
"""The folder of IMDb's documents without a class."""


class TextFolderSource(TextSource):
    """A folder for training and optionally one for the test, each with one subfolder for each class.

    The sorted names of the training subfolders are the classes. The files *.txt directly in a subfolder are the
    documents, in sorted order. Hidden files and a subfolder `unsup` are skipped.
    """

    def __init__(self, *, train: Path, test: Path | None) -> None:
        self._folders: dict[SplitName, Path | None] = {"train": train, "test": test}
        self.classes = tuple(class_of(folder) for folder in _subfolders(train, "data.train"))

    def open(self, split: SplitName) -> TextSet | None:
        folder, key = self._folders[split], f"data.{split}"
        if folder is None:
            return None
        texts: list[str] = []
        labels: list[int] = []
        files: list[Path] = []
        subfolders = _subfolders(folder, key)
        for subfolder in subfolders:
            label = require_known(subfolder, self.classes, key)
            found = [path for path in subfolder.glob("*.txt") if not is_hidden(path, subfolder)]
            for path in require_files(found, subfolder, key, holding="documents (*.txt)"):
                files.append(path)
                texts.append(read_text(path))
                labels.append(label)
        told = left_out(folder, subfolders, files, wanted="a file *.txt right in the folder of a class")
        self.notes = tuple(dict.fromkeys((*self.notes, *told)))
        return TextSet(texts, labels)


def _subfolders(folder: Path, key: str) -> list[Path]:
    return class_folders(folder, key, holding="documents (*.txt)", passed_over=(_UNLABELLED,))


def opened(section: TextFolder, task: TaskSection) -> TextSource:
    """The source of a spec's section, the same for all tasks. `implementation` in keys.py names this function, and
    `alray.data.opening.make_source` calls it."""
    return redivided(TextFolderSource(train=section.train, test=section.test), section.test_fraction)
