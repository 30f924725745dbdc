"""Data sets and tokenizers of the Hugging Face libraries `datasets` and `tokenizers` (the extra `hub`)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from alray.data.source import SplitName, TextSet, TextSource
from alray.errors import DataError, DataMissing


class HuggingFace(TextSource):
    """A text set: documents are columns of text joined by a space, labels are another column.

    If the label column is a ClassLabel, its names are the classes. Otherwise the classes are the values of that column
    in the training split, sorted; they are integers or texts.
    """

    def __init__(
        self,
        *,
        dataset: str | None,
        path: Path | None,
        config: str | None,
        train_split: str,
        test_split: str | None,
        text_columns: Sequence[str],
        label_column: str,
    ) -> None:
        """dataset: name on the hub. path: folder on disk, used instead of `dataset`. config: configuration of the set.

        Raises DataError if the extra is not installed, or if the set or a column does not exist.
        """
        self._location = dataset if path is None else str(path)
        self._where = "data.dataset" if path is None else "data.path"
        if path is not None and not path.is_dir():
            raise DataMissing(
                "folder not found",
                file=str(path),
                key=self._where,
                hint="give a folder of csv, json or parquet files named after their splits, such as train.csv",
            )
        self._text_columns = tuple(text_columns)
        self._label_column = label_column
        self._splits: dict[SplitName, str | None] = {"train": train_split, "test": test_split}
        self._sets = self._load(config)
        train = self._table("train", train_split)
        names = getattr(train.features[label_column], "names", None)
        self._values: list[Any] = list(range(len(names))) if names else self._values_of(train)
        self._classes = tuple(names or (str(value) for value in self._values))

    @property
    def classes(self) -> tuple[str, ...]:
        return self._classes

    def open(self, split: SplitName) -> TextSet | None:
        name = self._splits[split]
        if name is None:
            return None
        table = self._table(split, name)
        documents = zip(*(table[column][:] for column in self._text_columns), strict=True)
        numbers = {value: label for label, value in enumerate(self._values)}
        texts: list[str] = []
        labels: list[int] = []
        for row, (parts, value) in enumerate(zip(documents, table[self._label_column][:], strict=True)):
            if not all(isinstance(part, str) for part in parts):
                raise self._wrong(f"row {row} of split `{name}` has no text in {', '.join(self._text_columns)}")
            if value not in numbers:
                raise self._wrong(f"row {row} of split `{name}` has the label {value!r}, which is not a training class")
            texts.append(" ".join(parts))
            labels.append(numbers[value])
        return TextSet(texts, labels)

    def _load(self, config: str | None) -> Any:
        datasets = require_hub("datasets")
        try:
            return datasets.load_dataset(self._location, name=config)
        except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
            cause = error.__cause__ or error
            reason = " ".join(str(cause).split())
            hint = "check the name and the network, or give `path`, a folder on disk"
            if self._where == "data.path":
                hint = "give a folder of complete csv, json or parquet files that are named after their splits"
            raise DataError(f"`{self._location}` cannot be read: {reason}", key=self._where, hint=hint) from error

    def _table(self, split: SplitName, name: str) -> Any:
        if name not in self._sets:
            known = ", ".join(self._sets)
            hint = f"the splits are {known}" + ("; set data.test_split=null for none" if split == "test" else "")
            raise self._wrong(f"there is no split `{name}`", key=f"data.{split}_split", hint=hint)
        table = self._sets[name]
        for key, columns in (("text_columns", self._text_columns), ("label_column", (self._label_column,))):
            for column in columns:
                if column not in table.column_names:
                    known = ", ".join(table.column_names)
                    hint = f"the columns are {known}"
                    raise self._wrong(f"there is no column `{column}`", key=f"data.{key}", hint=hint)
        return table

    def _values_of(self, train: Any) -> list[Any]:
        values = set(train.unique(self._label_column))
        for kind in (int, str):
            if values and all(isinstance(value, kind) for value in values):
                return sorted(values)
        raise self._wrong(
            f"the column `{self._label_column}` does not contain classes",
            key="data.label_column",
            hint="use a column with only integers or only texts, and no missing values",
        )

    def _wrong(self, message: str, *, key: str = "data", hint: str = "repair the row or remove it") -> DataError:
        return DataError(f"{self._location}: {message}", key=key, hint=hint)


def hub_tokenizer(name: str) -> Callable[[str], list[str]]:
    """Return a function from a text to its tokens, without special tokens.

    name: path of a .json file, or a name on the hub. Raises DataError if the extra is not installed, or if the
    tokenizer is missing or damaged.
    """
    tokenizers = require_hub("tokenizers")
    if name.endswith(".json"):
        path = Path(name)
        if not path.is_file():
            raise DataError(
                "tokenizer not found",
                file=name,
                key="data.text.tokenizer",
                hint="give the path of a tokenizer's .json file, or use `basic_english`",
            )
        make, given = tokenizers.Tokenizer.from_str, path.read_bytes().decode("utf-8", "replace")
        hint = "give the file that `Tokenizer.save` of the tokenizers library writes"
    else:
        make, given = tokenizers.Tokenizer.from_pretrained, name
        hint = "check the name and the network; a .json file on disk needs no network"
    try:
        tokenizer = make(given)
    except Exception as error:  # the library raises exactly this type
        reason = " ".join(str(error).split())
        raise DataError(
            f"cannot load the tokenizer `{name}`: {reason}", key="data.text.tokenizer", hint=hint
        ) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def pieces(text: str) -> list[str]:
        return list(tokenizer.encode(text, add_special_tokens=False).tokens)

    return pieces


def require_hub(library: Literal["datasets", "tokenizers"]) -> Any:
    """Import a library of the extra `hub`. Raises DataError if the extra is not installed."""
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as error:
        raise DataError(
            f"this needs the library `{error.name}`, which is not installed",
            key="data",
            hint="pip install 'alray[hub]'",
        ) from error
