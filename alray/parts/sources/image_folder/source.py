"""Pictures in folders: with one subfolder for each class, or with a table of labels or targets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy
import torch
from PIL import Image
from torch import Tensor

from alray.config.sections.task import TaskSection
from alray.core.errors import DataError
from alray.data.class_folders import class_folders, class_of, is_hidden, left_out, require_files, require_known
from alray.data.columns import column_number, named_columns, require_distinct, without_name
from alray.data.csv_file import csv_table, of_width
from alray.data.numeric_labels import numeric_cell, require_labels
from alray.data.picture import Picture, PictureSet
from alray.data.source import Normalisation, Source, SplitName
from alray.data.standardisation import type_of
from alray.parts.sources.image_folder.keys import ImageFolder


class Folders(Source):
    """Folders of pictures for training, and optionally for validation and for the test.

    Pictures become RGB, of the size that the section says, scaled to -1..1.
    """

    normalisation = Normalisation(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))

    def __init__(self, section: ImageFolder) -> None:
        assert section.size is not None, "the section demands it"
        self._folders: dict[SplitName, Path | None] = {
            "train": section.train,
            "test": section.test,
            "validation": section.validation,
        }
        self._size = section.size
        self.picture = Picture((3, *self._size), self._size)

    def open(self, split: SplitName) -> PictureSet | None:
        folder = self._folders[split]
        if folder is None:
            return None
        paths, labels = self._read(split, folder)
        return PictureSet(paths, labels, self._size)

    def files(self, split: SplitName) -> Sequence[Path]:
        found = self.open(split)
        return () if found is None else found.paths

    @abstractmethod
    def _read(self, split: SplitName, folder: Path) -> tuple[tuple[Path, ...], tuple[int, ...] | Tensor]:
        """The files of the pictures in the folder of a split, and their labels. Raises DataError."""


class FoldersOfClasses(Folders):
    """Folders with one subfolder for each class.

    The sorted names of the training subfolders are the classes. A picture is any file below a subfolder with an ending
    that Pillow knows, except hidden files; pictures are read in sorted order.
    """

    def __init__(self, section: ImageFolder) -> None:
        super().__init__(section)
        self.classes = tuple(class_of(folder) for folder in _subfolders(section.train, "data.train"))

    def _read(self, split: SplitName, folder: Path) -> tuple[tuple[Path, ...], tuple[int, ...]]:
        paths: list[Path] = []
        labels: list[int] = []
        subfolders = _subfolders(folder, f"data.{split}")
        for subfolder in subfolders:
            label = require_known(subfolder, self.classes, f"data.{split}")
            pictures = _pictures(subfolder, f"data.{split}")
            paths.extend(pictures)
            labels.extend([label] * len(pictures))
        told = left_out(folder, subfolders, paths, wanted="a file with the ending of a picture that Pillow knows")
        self.notes = tuple(dict.fromkeys((*self.notes, *told)))
        return tuple(paths), tuple(labels)


def _subfolders(folder: Path, key: str) -> list[Path]:
    return class_folders(folder, key, holding="pictures")


def _pictures(subfolder: Path, key: str) -> list[Path]:
    endings = Image.registered_extensions()
    found = [
        path
        for path in subfolder.rglob("*")
        if path.suffix.lower() in endings and not is_hidden(path, subfolder) and path.is_file()
    ]
    return require_files(found, subfolder, key, holding="pictures")


_TABLE = "metadata.csv"
"""The table of targets in each folder."""
_FILE_NAME = "file_name"
"""The column of a table of targets that names the pictures."""
_LAYOUT = "the first line names the columns, `file_name` and labels; a line is a path and numbers"


class FoldersWithTables(Folders):
    """Folders that each have a table of the labels or targets of their pictures: `metadata.csv`, whose column
    `file_name` has paths within the folder."""

    def __init__(self, section: ImageFolder, task: TaskSection) -> None:
        super().__init__(section)
        self._columns = section.label_columns
        self._task = task
        self._type = torch.float64
        self.classes = ()
        self.standardises_targets = task.label == "numbers"
        self._read("train", section.train)

    def _read(self, split: SplitName, folder: Path) -> tuple[tuple[Path, ...], Tensor]:
        """The labels are [N, labels] float32; float64 where `type_of` the training set says so."""
        file, key = folder / _TABLE, f"data.{split}"
        header, records = csv_table(file, key, _LAYOUT)
        next(records)
        at = column_number(_FILE_NAME, header, file, key)
        others = [number for number in named_columns(header) if number != at]
        notes = without_name(header, [at], file, "label_columns")
        if self._columns is not None:
            others, notes = [column_number(column, header, file, "data.label_columns") for column in self._columns], ()
        require_distinct(header, (at, *others), file)
        paths: list[Path] = []
        rows: list[list[float]] = []
        lines: list[int] = []
        for line, record in of_width(records, len(header), file, _LAYOUT):
            paths.append(folder / record[at].strip())
            rows.append([numeric_cell(record[number], header[number], file, line) for number in others])
            lines.append(line)
        if not rows or not others:
            fault = "there is no line with a picture" if not rows else "there is no column of labels"
            raise DataError(fault, file=str(file), key=key, hint=_LAYOUT)
        exact, names = torch.tensor(rows, dtype=torch.float64), tuple(header[number] for number in others)
        if split == "train":
            self.notes, self.classes = notes, names
            self._type = torch.float64 if type_of(exact.numpy()) is numpy.float64 else torch.float32
        labels = exact.to(self._type)
        require_labels(labels, self._task, file, lines)
        if names != self.classes:
            raise DataError(
                f"it has the columns {', '.join(names)}, and that of the training set {', '.join(self.classes)}",
                file=str(file),
                line=1,
                hint="give both the same columns, or choose them with data.label_columns",
            )
        return tuple(paths), labels


def opened(section: ImageFolder, task: TaskSection) -> Source:
    """The source of a spec's section. `implementation` in keys.py names this function, and
    `alray.data.opening.make_source` calls it."""
    return FoldersOfClasses(section) if task.label == "class" else FoldersWithTables(section, task)
