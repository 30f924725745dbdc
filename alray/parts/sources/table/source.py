"""Tables of numbers as a source of samples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from numpy.typing import NDArray

from alray.config.sections.task import TASKS, TaskSection
from alray.data.class_labels import class_numbers, known_classes, labels_of
from alray.data.csv_file import CsvForm
from alray.data.numeric_labels import require_labels
from alray.data.source import Source, SplitName, TensorSet
from alray.data.standardisation import type_of
from alray.data.table_file import RowReader, Rows, TableLayout, read_rows
from alray.parts.sources.table.keys import TableFiles


class TableSource(Source):
    """A file for training, and optionally files for validation and for the test, with the same columns.

    A file that ends with `.parquet` is Parquet, any other CSV. Classes are as in `TextCsv`. Every column is normalised
    by its mean and its standard deviation in the training split, and so are the targets of a regression. Where float32
    would round away what a column says, they are kept in float64 until then (`type_of`).
    """

    standardises_samples = True

    def __init__(
        self,
        *,
        train: Path,
        validation: Path | None,
        test: Path | None,
        layout: TableLayout | None = None,
        classes: Sequence[str] | None = None,
        task: TaskSection | None = None,
    ) -> None:
        """Read the training file. Raises DataError, with file and line, if a file is missing or damaged."""
        self._files: dict[SplitName, Path | None] = {"validation": validation, "test": test}
        self._layout = layout or TableLayout()
        self._task = TASKS.default_section() if task is None else task
        names = known_classes(train, classes)
        self._train = read_rows(train, "data.train", self._layout)
        self._numbers = class_numbers(self._train, names) if self._layout.targets is None else None
        self.classes = self._train.target_names if self._numbers is None else self._numbers.names
        self.notes = self._train.notes + (() if self._numbers is None else self._numbers.notes)
        self._type, self._target_type = type_of(self._train.samples), type_of(self._train.numeric_labels)
        self.rows = RowReader.of(self._train, self._layout.form, wide=self._type is numpy.float64)
        self.standardises_targets = self._task.label == "numbers"

    def open(self, split: SplitName) -> TensorSet | None:
        if split == "train":
            return self._set_of(self._train)
        file = self._files[split]
        if file is None:
            return None
        return self._set_of(read_rows(file, f"data.{split}", self._layout.of(self._train)))

    def _samples_of(self, rows: Rows) -> NDArray[Any]:
        # All columns are converted at once: the order in which numpy adds depends on how a matrix lies in memory.
        return rows.values.astype(self._type)[:, : len(rows.chosen)]

    def _labels_of(self, rows: Rows) -> NDArray[Any]:
        return rows.values.astype(self._target_type)[:, len(rows.chosen) :]

    def _set_of(self, rows: Rows) -> TensorSet:
        samples = torch.from_numpy(self._samples_of(rows))
        if self._numbers is None:
            targets = torch.from_numpy(self._labels_of(rows).copy())
            require_labels(targets, self._task, rows.path, rows.lines)
            return TensorSet(samples.clone(memory_format=torch.contiguous_format), targets, exact=True)
        labels = torch.tensor(labels_of(rows, self._numbers), dtype=torch.int64)
        return TensorSet(samples, labels, exact=True)


def opened(section: TableFiles, task: TaskSection) -> Source:
    """The source of a spec's section. `implementation` in keys.py names this function, and
    `alray.data.opening.make_source` calls it."""
    return TableSource(
        train=section.train,
        validation=section.validation,
        test=section.test,
        layout=TableLayout(
            section.header,
            section.label_column,
            section.columns,
            None if task.label == "class" else section.label_columns or (),
            form=CsvForm(section.delimiter, section.decimal),
        ),
        classes=section.classes,
        task=task,
    )
