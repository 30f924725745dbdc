"""Pictures in folders, with one subfolder for each class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
from PIL import Image
from torch import Tensor

from alray.config.sections.task import TaskSection
from alray.core.errors import DataError
from alray.data.class_folders import class_folders, class_of, require_files, require_known
from alray.data.class_labels import (
    column_number,
    damaged_record,
    named_columns,
    plain,
    require_distinct,
    without_name,
)
from alray.data.csv_file import COMMAS, CsvForm, csv_records
from alray.data.numeric_labels import numeric_cell, require_labels, standardisation_of, type_of
from alray.data.picture import BY_DEFAULT, Picture, PictureFiles, Reading, read_image
from alray.data.source import Normalisation, Source, SplitName
from alray.models.task import Label


@dataclass(frozen=True)
class PictureSet(PictureFiles):
    """Pictures that are decoded when they are read. An entry is uint8 [3, *size] and a label.

    Attributes:
        labels: class numbers, or [N, labels] floating point.
        size: height and width, pixels.
    """

    paths: tuple[Path, ...]
    labels: tuple[int, ...] | Tensor
    size: tuple[int, int]
    reading: Reading = BY_DEFAULT

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, Label]:
        return read_image(self.paths[index], (3, *self.size), reading=self.reading), self.labels[index]

    def encoded(self, index: int) -> tuple[Path, None]:
        return self.paths[index], None


_FILE_NAME = "file_name"
"""The column of a table of targets that names the pictures."""


class ImagesWithTargets(Source):
    """Folders for training, and optionally for validation and for the test, each with a table of the labels or targets
    of its pictures: a CSV file whose column `file_name` has paths within the folder."""

    normalisation = Normalisation(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))

    def __init__(
        self,
        *,
        train: Path,
        test: Path | None,
        validation: Path | None,
        size: tuple[int, int],
        table: str,
        columns: Sequence[str | int] | None,
        form: CsvForm = COMMAS,
        task: TaskSection,
        reading: Reading = BY_DEFAULT,
    ) -> None:
        """
        Args:
            table: its name in each folder.
            columns: of the labels or targets; None: all but `file_name`.
            form: of the table.
        """
        self._folders: dict[SplitName, Path | None] = {"train": train, "test": test, "validation": validation}
        self._table = table
        self._columns = columns
        self._form = form
        self._task = task
        self._size = size
        self._reading = reading
        self.picture = Picture((3, *size), size, reading=reading)
        names, _, labels = self._read("train", train)
        self._names = names
        if task.label == "numbers":
            self.target_normalisation = standardisation_of(labels.numpy())

    @property
    def classes(self) -> tuple[str, ...]:
        return self._names

    def open(self, split: SplitName) -> PictureSet | None:
        folder = self._folders[split]
        if folder is None:
            return None
        names, paths, labels = self._read(split, folder)
        if names != self._names:
            raise DataError(
                f"it has the columns {', '.join(names)}, and that of the training set {', '.join(self._names)}",
                file=str(folder / self._table),
                line=1,
                hint="give both the same columns, or choose them with data.label_columns",
            )
        return PictureSet(paths, labels, self._size, self._reading)

    def files(self, split: SplitName) -> Sequence[Path]:
        found = self.open(split)
        return () if found is None else found.paths

    def _read(self, split: SplitName, folder: Path) -> tuple[tuple[str, ...], tuple[Path, ...], Tensor]:
        """The names of the labels, the paths of the pictures, and the labels [N, labels] float32; float64 where
        `type_of` the training set says so."""
        file = folder / self._table
        layout = "the first line names the columns, `file_name` and labels; a line is a path and numbers"
        records = csv_records(file, f"data.{split}", layout, self._form)
        _, first = next(records, (0, []))
        header = list(map(plain, first))
        at = column_number(_FILE_NAME, header, file, "targets")
        others = [number for number in named_columns(header) if number != at]
        notes = without_name(header, [at], file, "label_columns")
        if self._columns is not None:
            others, notes = [column_number(column, header, file, "label_columns") for column in self._columns], ()
        require_distinct(header, (at, *others), file)
        if split == "train":
            self.notes = notes
        paths: list[Path] = []
        rows: list[list[float]] = []
        lines: list[int] = []
        for line, record in records:
            if len(record) != len(header):
                raise damaged_record(f"expected {len(header)} columns, got {len(record)}", file, line, hint=layout)
            paths.append(folder / record[at].strip())
            rows.append(
                [numeric_cell(record[number], header[number], file, line, self._form.decimal) for number in others]
            )
            lines.append(line)
        if not rows or not others:
            message = "there is no line with a picture" if not rows else "there is no column of labels"
            raise DataError(message, file=str(file), key=f"data.{split}", hint=layout)
        exact = torch.tensor(rows, dtype=torch.float64)
        if split == "train":
            self._type = torch.float64 if type_of(exact.numpy()) is numpy.float64 else torch.float32
        labels = exact.to(self._type)
        require_labels(labels, self._task, file, lines)
        return tuple(header[number] for number in others), tuple(paths), labels


class ImageFolderSource(Source):
    """Folders for training, and optionally for validation and for the test, each with one subfolder for each class.

    The sorted names of the training subfolders are the classes. A picture is any file below a subfolder with an ending
    that Pillow knows, except hidden files; pictures are read in sorted order. They become RGB, scaled to -1..1.
    """

    normalisation = Normalisation(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))

    def __init__(
        self,
        *,
        train: Path,
        test: Path | None,
        validation: Path | None,
        size: tuple[int, int],
        reading: Reading = BY_DEFAULT,
    ) -> None:
        """
        Args:
            size: height and width to which every picture is resized (not cropped), in pixels.
        """
        self._folders: dict[SplitName, Path | None] = {"train": train, "test": test, "validation": validation}
        self._size = size
        self._reading = reading
        self.picture = Picture((3, *size), size, reading=reading)
        self._classes = tuple(class_of(folder) for folder in _subfolders(train, "data.train"))

    @property
    def classes(self) -> tuple[str, ...]:
        return self._classes

    def open(self, split: SplitName) -> PictureSet | None:
        folder = self._folders[split]
        if folder is None:
            return None
        paths: list[Path] = []
        labels: list[int] = []
        for subfolder in _subfolders(folder, f"data.{split}"):
            label = require_known(subfolder, self._classes, f"data.{split}")
            pictures = _pictures(subfolder, f"data.{split}")
            paths.extend(pictures)
            labels.extend([label] * len(pictures))
        return PictureSet(tuple(paths), tuple(labels), self._size, self._reading)

    def files(self, split: SplitName) -> Sequence[Path]:
        found = self.open(split)
        return () if found is None else found.paths


def _subfolders(folder: Path, key: str) -> list[Path]:
    return class_folders(folder, key, holding="pictures")


def _pictures(subfolder: Path, key: str) -> list[Path]:
    endings = Image.registered_extensions()
    found = [
        path
        for path in subfolder.rglob("*")
        if path.suffix.lower() in endings and not path.name.startswith(".") and path.is_file()
    ]
    return require_files(found, subfolder, key, holding="pictures")
