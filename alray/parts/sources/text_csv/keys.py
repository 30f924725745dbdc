"""`data: text_csv`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Literal

from alray.config.sections.columns import ClassNames, Column, Columns, Delimiter, Header, column_faults
from alray.config.sections.data import TestFraction, TextSection
from alray.config.sections.kind import Finding
from alray.config.sections.paths import Path
from alray.config.sections.section import InputFile

if TYPE_CHECKING:
    from alray.config.sections.spec import Spec


class TextCsv(TextSection):
    """Documents in CSV files: a column of classes, and one or more columns of text.

    Classes are numbers from 0 or 1 without gaps, or names. A file `classes.txt` next to the training file may give the
    names of the classes, one on each line. AG News and DBpedia are read without further keys.
    """

    implementation = "source:opened"

    source: Literal["text_csv"]
    """`text_csv`."""
    train: InputFile
    """File of the training set."""
    test: InputFile | None = None
    """File of the test set, with the same classes and columns. null: no test set."""
    test_fraction: TestFraction | None = None
    """Share in 0..1 of all documents, those of `train` and `test` together, that is the test set: a random part that
    does not depend on the seed. null: the documents of `test`."""
    header: Header = "auto"
    """Whether the first line names the columns. Default: auto, if a column is given by its name, if the first line has
    the name `label`, or if its class is neither a number nor on another line."""
    delimiter: Delimiter = ","
    """The character between two columns, such as ";", or "\\t" for a tab. Default: ","."""
    label_column: Column | None = None
    """Column of the class: its name, or its number, counted from 0. null: the column `label`, or else the first."""
    text_columns: Columns | None = None
    """Columns that form a document, joined by a space: names or numbers, or one of them. null: all others; if
    columns have names, those with a name."""
    classes: ClassNames | None = None
    """Names of the classes, in the order of their numbers. null: those of `classes.txt`, or else the different classes
    of the training file."""

    @property
    def read_beside(self) -> tuple[FilePath, ...]:
        return (self.train.parent / "classes.txt",)

    def faults(self, spec: Spec, at: Path) -> Iterator[Finding]:
        yield from column_faults(
            at,
            key="text_columns",
            what="text",
            others=self.text_columns,
            header=self.header,
            labels=() if self.label_column is None else (self.label_column,),
            classes=self.classes,
        )
