"""Data sets and tokenizers of the Hugging Face libraries `datasets` and `tokenizers` (the extra `hub`)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from alray.config.sections.section import did_you_mean, nearest
from alray.core.errors import DataError, DataMissing
from alray.data.columns import plain
from alray.data.picture import Picture, PictureFiles
from alray.data.source import Normalisation, Source, SplitName, TextSet, TextSource
from alray.data.text_file import equal_line_ends


class HubSets:
    """The splits of a set on the hub or in a folder, with a column of classes.

    If the label column is a ClassLabel, its names are the classes. Otherwise the classes are the values of that column
    in the training split, sorted; they are integers or texts.
    """

    def __init__(
        self,
        *,
        dataset: str | None,
        path: Path | None,
        config: str | None,
        splits: Mapping[SplitName, str | None],
        label_column: str,
        columns: Mapping[str, Sequence[str]],
    ) -> None:
        """
        Args:
            dataset: name on the hub.
            path: folder on disk, used instead of `dataset`.
            config: configuration of the set.
            splits: the name of each split; None: there is none.
            columns: of the samples, by the key of `data` that names them.

        Raises:
            DataError: if the extra is not installed, or if the set or a column does not exist.
        """
        self._location = dataset if path is None else str(path)
        self.name = str(self._location)
        self._where = "data.dataset" if path is None else "data.path"
        if path is not None and not path.is_dir():
            raise DataMissing(
                "folder not found",
                file=str(path),
                key=self._where,
                hint="give a folder of csv, json or parquet files named after their splits, such as train.csv",
            )
        self.label_column = plain(label_column)
        self._columns = {
            key: tuple(map(plain, each)) for key, each in {**columns, "label_column": (label_column,)}.items()
        }
        self._splits = dict(splits)
        self._sets = self._load(config)
        train = self.table("train")
        names = getattr(train.features[self.label_column], "names", None)
        self._values: list[Any] = list(range(len(names))) if names else self._values_of(train)
        self.classes = tuple(names or (str(value) for value in self._values))

    def table(self, split: SplitName) -> Any:
        """The `datasets.Dataset` of a split; None if the spec names none."""
        name = self._splits.get(split)
        if name is None:
            return None
        if name not in self._sets:
            known = ", ".join(self._sets)
            hint = f"the splits are {known}" + (f"; set data.{split}_split=null for none" if split != "train" else "")
            raise self.wrong(f"there is no split `{name}`", key=f"data.{split}_split", hint=hint)
        table = self._sets[name]
        for key, columns in self._columns.items():
            for column in columns:
                if column not in table.column_names:
                    known = ", ".join(table.column_names)
                    hint = did_you_mean(nearest(column, table.column_names), f"the columns are {known}")
                    raise self.wrong(f"there is no column `{column}`", key=f"data.{key}", hint=hint)
        return table

    def split_name(self, split: SplitName) -> str | None:
        """The name of a split in the set."""
        return self._splits.get(split)

    def labels(self, split: SplitName) -> list[int]:
        """The number of the class of each row."""
        numbers = {value: label for label, value in enumerate(self._values)}
        labels = []
        values = self.table(split)[self.label_column][:]
        if split != "train" and set(values) <= {-1, None, ""}:
            message = f"no row of split `{self.split_name(split)}` has a label: its publisher hides them"
            hint = f"set data.{split}_split=null, or name a split with labels: {', '.join(self._sets)}"
            raise self.wrong(message, key=f"data.{split}_split", hint=hint)
        for row, value in enumerate(map(_plain_value, values)):
            if value not in numbers:
                where = f"row {row} of split `{self.split_name(split)}`"
                raise self.wrong(f"{where} has the label {value!r}, which is not a training class")
            labels.append(numbers[value])
        return labels

    def wrong(self, message: str, *, key: str = "data", hint: str = "repair the row or remove it") -> DataError:
        """The error that says what is wrong with this set."""
        return DataError(f"{self._location}: {message}", key=key, hint=hint)

    def _load(self, config: str | None) -> Any:
        datasets = require_hub("datasets")
        try:
            loaded = datasets.load_dataset(self._location, name=config)
        except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
            cause = error.__cause__ or error
            reason = " ".join(str(cause).split())
            hint = "check the name and the network, or give `path`, a folder on disk"
            if self._where == "data.path":
                hint = "give a folder of complete csv, json or parquet files that are named after their splits"
            raise DataError(f"`{self._location}` cannot be read: {reason}", key=self._where, hint=hint) from error

        return {name: _with_plain_names(split) for name, split in loaded.items()}

    def _values_of(self, train: Any) -> list[Any]:
        values = set(map(_plain_value, train.unique(self.label_column)))
        for kind in (int, str):
            if values and all(isinstance(value, kind) for value in values):
                return sorted(values)
        raise self.wrong(
            f"the column `{self.label_column}` does not contain classes",
            key="data.label_column",
            hint="use a column with only integers or only texts, and no missing values",
        )


def _plain_value(value: Any) -> Any:
    return plain(value) if isinstance(value, str) else value


def _with_plain_names(split: Any) -> Any:
    """A split whose columns have names as `plain` makes them, where that leaves them different."""
    names = {name: plain(name) for name in split.column_names if plain(name) != name}
    if len({plain(name) for name in split.column_names}) < len(split.column_names):
        return split
    return split.rename_columns(names) if names else split


class HubTexts(TextSource):
    """A text set: documents are columns of text joined by a space."""

    def __init__(self, sets: HubSets, text_columns: Sequence[str]) -> None:
        self._sets = sets
        self.classes = sets.classes
        self._text_columns = tuple(map(plain, text_columns))
        if sets.label_column in self._text_columns:
            message = f"column `{sets.label_column}` has the label, and samples contain it too"
            raise sets.wrong(message, key="data.text_columns", hint="leave it out of data.text_columns")

    def open(self, split: SplitName) -> TextSet | None:
        table = self._sets.table(split)
        if table is None:
            return None
        texts: list[str] = []
        for row, parts in enumerate(zip(*(table[column][:] for column in self._text_columns), strict=True)):
            if not all(isinstance(part, str) for part in parts):
                where = f"row {row} of split `{self._sets.split_name(split)}`"
                raise self._sets.wrong(f"{where} has no text in {', '.join(self._text_columns)}")
            texts.append(equal_line_ends(" ".join(parts)))
        return TextSet(texts, self._sets.labels(split))


@dataclass(frozen=True)
class HubPictures(PictureFiles):
    """Pictures in a column of a table.

    Attributes:
        table: a `datasets.Dataset` whose images are not decoded.
        name: of the set, for messages.
    """

    table: Any
    column: str
    labels: tuple[int, ...]
    size: tuple[int, int]
    name: str

    def encoded(self, index: int) -> tuple[Path, bytes | None]:
        cell = self.table[index][self.column]
        if cell is None:
            raise DataError(
                f"{self.name}: row {index} has no picture in `{self.column}`", key="data", hint="remove the row"
            )
        content = cell["bytes"]
        return Path(cell["path"] if content is None else f"{self.name}, row {index}"), content


class HubImages(Source):
    """A set of pictures. They become RGB, scaled to -1..1, as those of an image folder."""

    normalisation = Normalisation(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))

    def __init__(self, sets: HubSets, image_column: str, size: tuple[int, int]) -> None:
        """
        Args:
            size: height and width to which every picture is resized (not cropped), in pixels.
        """
        self._sets = sets
        self.classes = sets.classes
        self._column = plain(image_column)
        self._size = size
        self.picture = Picture((3, *size), size)

    def open(self, split: SplitName) -> HubPictures | None:
        image = require_hub("datasets").Image
        table = self._sets.table(split)
        if table is None:
            return None
        if not isinstance(table.features[self._column], image):
            hint = "name a column of images, as `datasets` knows them"
            kind = type(table.features[self._column]).__name__
            raise self._sets.wrong(f"the column `{self._column}` is {kind}", key="data.image_column", hint=hint)
        undecoded = table.cast_column(self._column, image(decode=False))
        labels = tuple(self._sets.labels(split))
        return HubPictures(undecoded, self._column, labels, self._size, self._sets.name)


def hub_tokenizer(name: str) -> Callable[[str], list[str]]:
    """Return a function from a text to its tokens, without special tokens. Raises DataError as `load_tokenizer`."""
    tokenizer = load_tokenizer(name, key="data.text.tokenizer")

    def pieces(text: str) -> list[str]:
        return list(tokenizer.encode(text, add_special_tokens=False).tokens)

    return pieces


def load_tokenizer(name: str, *, key: str) -> Any:
    """Return a `tokenizers.Tokenizer` that neither truncates nor pads.

    Args:
        name: path of a .json file, or a name on the hub.
        key: of the spec that names it.

    Raises:
        DataError: if the extra is not installed, or if the tokenizer is missing or damaged.
    """
    tokenizers = require_hub("tokenizers")
    if name.endswith(".json"):
        path = Path(name)
        if not path.is_file():
            raise DataError(
                "tokenizer not found",
                file=name,
                key=key,
                hint="give the path of a tokenizer's .json file",
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
        raise DataError(f"cannot load the tokenizer `{name}`: {reason}", key=key, hint=hint) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


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
