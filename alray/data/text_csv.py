"""Documents in CSV files without a header: class, then columns of text. AG News and DBpedia have this layout."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from alray.data.source import SplitName, TextSet, TextSource
from alray.data.text_file import decoded_lines, read_text
from alray.errors import DataError

_LAYOUT = 'a line is "class","title","description", without a header; classes are counted from 1'


class TextCsv(TextSource):
    """A file for training and optionally one for the test, in the layout of Zhang et al. 2015.

    A document is its text columns, joined by a space. The files count classes from 1, alray counts them from 0. The
    names of the classes are the lines of `classes.txt` beside the training file. Without that file they are "1" to "n",
    where n is the largest class in the training file.
    """

    def __init__(self, *, train: Path, test: Path | None) -> None:
        """Read the training file. Raises DataError, with file and line, if a file is missing or damaged."""
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
        """Raise DataError if a line does not have as many columns as the first line of the training file."""
        if len(row) < 2 or len(row) != (self._columns or len(row)):
            expected = f"{self._columns}" if self._columns else "at least 2"
            raise _damaged(f"expected {expected} columns, got {len(row)}", path, line)
        self._columns = len(row)

    def _label(self, text: str, num_classes: int | None, path: Path, line: int) -> int:
        if not (text.strip().isascii() and text.strip().isdecimal()):
            shown = text if len(text) <= 40 else text[:37] + "..."
            raise _damaged(f"`{shown}` is not the number of a class", path, line)
        number = int(text)
        if number < 1 or (num_classes is not None and number > num_classes):
            known = "1 or more" if num_classes is None else f"1 to {num_classes}"
            raise _damaged(f"expected a class of {known}, got {number}", path, line)
        return number - 1

    def _numbered_classes(self) -> tuple[str, ...]:
        """Return "1" to "n". Raises DataError if a class has no document, because its number may be damaged."""
        assert self._train is not None
        assert self._paths["train"] is not None
        present = set(self._train.labels)
        largest = max(present, default=-1)
        missing = next((label for label in range(largest) if label not in present), None)
        if missing is not None:
            raise DataError(
                f"class {missing + 1} has no documents, but class {largest + 1} has",
                file=str(self._paths["train"]),
                key="data.train",
                mend="number the classes from 1 without gaps, or name all of them in classes.txt beside the file",
            )
        return tuple(str(label + 1) for label in range(largest + 1))


def _rows(path: Path, key: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each record with the number of its first line. Raises DataError if the file is missing or not CSV."""
    if not path.is_file():
        raise DataError("file not found", file=str(path), key=key, mend=f"give a CSV file in which {_LAYOUT}")
    with path.open("rb") as file:
        reader = csv.reader(decoded_lines(file, path), strict=True)
        while True:
            line = reader.line_num + 1
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise _damaged(f"this is not a CSV record ({error}); a quote may be open", path, line) from error
            if row:  # an empty line is not a record
                yield line, row


def _names(path: Path) -> tuple[str, ...]:
    names = tuple(line.strip() for line in read_text(path).splitlines() if line.strip())
    if not names or len(set(names)) != len(names):
        raise DataError(
            "the file has no class names" if not names else "two classes have the same name",
            file=str(path),
            mend="write one name on each line, or remove the file to name the classes by their numbers",
        )
    return names


def _damaged(message: str, path: Path, line: int) -> DataError:
    return DataError(message, file=str(path), line=line, mend=_LAYOUT)
