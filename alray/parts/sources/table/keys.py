"""`data: table`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Literal, Self

from pydantic import model_validator

from alray.config.sections.columns import (
    ClassNames,
    Column,
    Columns,
    Delimiter,
    Header,
    column_faults,
)
from alray.config.sections.data import NUMERIC, OwnValidationSection
from alray.config.sections.expected import Expected
from alray.config.sections.kind import Finding
from alray.config.sections.paths import Path
from alray.config.sections.section import InputFile, refusal
from alray.config.sections.task import DEFAULT as DEFAULT_TASK

if TYPE_CHECKING:
    from alray.config.sections.spec import Spec


class TableFiles(OwnValidationSection):
    """Rows of numbers in CSV or Parquet files: columns of numbers, and a column of classes; in other tasks than
    classification, columns of labels or targets.

    A file that ends with `.parquet` is Parquet, any other CSV. Classes are numbers from 0 or 1 without gaps, or names.
    A file `classes.txt` next to the training file may give the names of the classes, one on each line. Every column is
    normalised by its mean and its standard deviation in the training split, and so are the targets of a regression.
    """

    implementation = "source:opened"
    labels = NUMERIC
    samples_are = "rows of numbers"
    for_pictures = ("augment", "image_size", "channels")

    source: Literal["table"]
    """`table`."""
    train: InputFile
    """File of the training set."""
    test: InputFile | None = None
    """File of the test set, with the same classes and columns. null: no test set."""
    validation: InputFile | None = None
    """File of the validation set, with the same classes and columns. null: `validation_fraction` of the training
    set."""
    header: Header = "auto"
    """Whether the first line of a CSV file names the columns. Default: auto, unless all columns are given by number
    and the first line has a number in each column of numbers, and is not 0, 1, 2 and so on, which pandas writes."""
    delimiter: Delimiter = ","
    """The character between two columns of a CSV file, such as ";", or "\\t" for a tab. Default: ","."""
    decimal: Literal[".", ","] = "."
    """The decimal sign in a CSV file. Default: "."."""
    label_column: Column | None = None
    """Column of the class: its name, or its number, counted from 0. null: the column `label`."""
    label_columns: Columns | None = None
    """Columns of the labels (0 or 1) or the targets, for other tasks than classification: names or numbers, or one of
    them. null: `label_column`."""
    columns: Columns | None = None
    """Columns of numbers: names or numbers, or one of them. null: all others; if columns have names, those with a
    name."""
    classes: ClassNames | None = None
    """Names of the classes, in the order of their numbers. null: those of `classes.txt`, or else the different classes
    of the training file."""

    @model_validator(mode="after")
    def _has_two_signs(self) -> Self:
        if self.delimiter == self.decimal:
            raise refusal(
                f"`{self.decimal}` cannot both divide columns and be the decimal sign",
                'set delimiter too, such as delimiter: ";"',
            )
        return self

    @property
    def of_kind(self) -> Expected:
        return Expected(shape=None if self.columns is None else (len(self.columns),))

    @property
    def read_beside(self) -> tuple[FilePath, ...]:
        return (self.train.parent / "classes.txt",)

    def faults(self, spec: Spec, at: Path) -> Iterator[Finding]:
        yield from column_faults(
            at,
            key="columns",
            what="numbers",
            others=self.columns,
            header=self.header,
            labels=self.label_columns or (() if self.label_column is None else (self.label_column,)),
            classes=self.classes,
        )
        task = spec.task.kind
        if task != DEFAULT_TASK and None not in (self.label_columns, self.label_column):
            message = "`label_columns` and `label_column` both name the labels"
            yield (*at, "label_column"), message, "leave it out"
        if task != DEFAULT_TASK and self.classes is not None:
            yield (*at, "classes"), f"the task {task} has no classes", "leave it out"
