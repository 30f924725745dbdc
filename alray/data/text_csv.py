"""Documents in CSV files without a header, the layout of AG News and DBpedia: class, then columns of text."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from alray.data.source import SplitName, TextSet, TextSource
from alray.data.text_file import decoded_lines, read_text
from alray.errors import DataError

_LAYOUT = 'lines are "class","title","description" without a header, classes are counted from 1'


class TextCsv(TextSource):
    """A file for training and, if there is one, a file for the test (Zhang et al. 2015's layout).

    A document is its text columns, joined by a space. Classes count from 1 in the files and from 0 in alray. Their
    names are the lines of `classes.txt` beside the training file, or "1" to "n", n the largest class trained on.
    """

    def __init__(self, *, train: Path, test: Path | None) -> None:
        """Reads the training file. Raises DataError with file and line where one is missing or damaged."""
        self._paths: dict[SplitName, Path | None] = {"train": train, "test": test}
        names = train.parent / "classes.txt"
        self._names_file = names if names.is_file() else None
        known = _names(names) if self._names_file else None
        self._columns: int | None = None
        self._train = self._read("train", len(known) if known else None)
        self._classes = known or self._numbered_classes()

    @property
    def classes(self) -> tuple[str, ...]:
        return self._classes

    def open(self, split: SplitName) -> TextSet | None:
        return self._train if split == "train" else self._read(split, len(self._classes))

    def _read(self, split: SplitName, num_classes: int | None) -> TextSet | None:
        path = self._paths[split]
        if path is None:
            return None
        texts: list[str] = []
        labels: list[int] = []
        for line, row in _rows(path, f"data.{split}"):
            self._check_columns(row, path, line)
            labels.append(self._label(row[0], num_classes, path, line))
            texts.append(" ".join(row[1:]))
        return TextSet(texts, labels)

    def _check_columns(self, row: list[str], path: Path, line: int) -> None:
        """Every line has as many columns as the first one of the training file."""
        if len(row) < 2 or len(row) != (self._columns or len(row)):
            expected = f"and {self._columns} were expected" if self._columns else "and there are two at least"
            raise _damaged(f"the line has {len(row)} columns, {expected}", path, line)
        self._columns = len(row)

    def _label(self, text: str, num_classes: int | None, path: Path, line: int) -> int:
        if not (text.strip().isascii() and text.strip().isdecimal()):
            shown = text if len(text) <= 40 else text[:37] + "..."
            raise _damaged(f"`{shown}` is not the number of a class", path, line)
        number = int(text)
        if number < 1 or (num_classes is not None and number > num_classes):
            known = "" if num_classes is None else f", and there are {num_classes}"
            raise _damaged(f"class {number} is out of range: they count from 1{known}", path, line)
        return number - 1

    def _numbered_classes(self) -> tuple[str, ...]:
        """ "1" to "n". Raises DataError where one of them has no document: a damaged number would look like that."""
        assert self._train is not None
        assert self._paths["train"] is not None
        present = set(self._train.labels)
        largest = max(present, default=-1)
        missing = next((label for label in range(largest) if label not in present), None)
        if missing is not None:
            raise DataError(
                f"class {missing + 1} has no documents, and class {largest + 1} has",
                file=str(self._paths["train"]),
                key="data.train",
                mend="classes count from 1 without gaps; or name them all in classes.txt beside the file",
            )
        return tuple(str(label + 1) for label in range(largest + 1))


def _rows(path: Path, key: str) -> Iterator[tuple[int, list[str]]]:
    """Each record with the line it begins on. Raises DataError where the file is missing or not such a CSV."""
    if not path.is_file():
        raise DataError("file not found", file=str(path), key=key, mend=f"give a CSV file, as AG News comes: {_LAYOUT}")
    with path.open("rb") as file:
        reader = csv.reader(decoded_lines(file, path), strict=True)
        while True:
            line = reader.line_num + 1
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise _damaged(f"not a CSV record ({error}): is a quote left open?", path, line) from error
            if row:  # an empty line is none
                yield line, row


def _names(path: Path) -> tuple[str, ...]:
    names = tuple(line.strip() for line in read_text(path).splitlines() if line.strip())
    if not names or len(set(names)) != len(names):
        raise DataError(
            "there is no class in it" if not names else "two classes have one name",
            file=str(path),
            mend="write a name a line, or remove the file: classes are then named by their numbers",
        )
    return names


def _damaged(message: str, path: Path, line: int) -> DataError:
    return DataError(message, file=str(path), line=line, mend=_LAYOUT)
