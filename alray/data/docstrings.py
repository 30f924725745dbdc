"""Which library is it from? Documents made of the docstrings of the Python packages installed here."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

from alray.data.docstring_files import Library, documents, installed_libraries
from alray.data.generators import generator
from alray.data.source import SplitName
from alray.data.text_source import TextSet, TextSource
from alray.errors import DataError

TEST_FRACTION = 0.15
# Never the seed of a run: every run and every seed is tested on the same documents.
TEST_SPLIT_SEED = 0
_FORMAT = 1  # of the documents and of the cache; another one is made anew


class Docstrings(TextSource):
    """Docstrings of the standard library, NumPy, SciPy and scikit-learn; the class is the library.

    Read off the packages' source files at first use and kept in a cache. The set is the same wherever the same
    versions are installed; what a document is, `docstring_files.documents` says. A fixed random 15 % are the test set.

    With Python 3.11.7, NumPy 2.4.6, SciPy 1.17.1 and scikit-learn 1.9.1: 13,165 documents, the largest class 0.409;
    TF-IDF (1 + log of counts) with logistic regression (C = 10) gets 0.913 of the test set right.
    """

    def __init__(self, *, cache: Path | None, libraries: Sequence[Library] | None = None) -> None:
        """cache: folder, null is `alray` in the user's cache folder; libraries: those installed where None."""
        self._libraries = tuple(installed_libraries() if libraries is None else libraries)
        folder = _user_cache() if cache is None else cache
        self._documents = _cached(folder / f"docstrings-{_key(self._libraries)}.json", self._libraries)

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(library.name for library in self._libraries)

    def open(self, split: SplitName) -> TextSet:
        order = torch.randperm(len(self._documents), generator=generator(TEST_SPLIT_SEED, "docstrings")).tolist()
        num_test = round(len(order) * TEST_FRACTION)
        chosen = sorted(order[:num_test] if split == "test" else order[num_test:])
        return TextSet([self._documents[i][0] for i in chosen], [self._documents[i][1] for i in chosen])


def _key(libraries: Sequence[Library]) -> str:
    """Names a set by what it is made of."""
    made_of = [_FORMAT, *([library.name, library.version] for library in libraries)]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]


def _user_cache() -> Path:
    """$XDG_CACHE_HOME/alray or ~/.cache/alray (XDG Base Directory Specification: a relative one is not taken)."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "alray"


def _cached(path: Path, libraries: Sequence[Library]) -> list[tuple[str, int]]:
    """The documents of the cache file, which is made where it is missing or damaged (a warning says so)."""
    if path.is_file():
        found = _read(path)
        if found is not None:
            return found
        warnings.warn(f"{path} is damaged, and is made anew", stacklevel=2)
    made = documents(libraries)
    _require_all_classes(made, libraries)
    _write(path, made)
    return made


def _require_all_classes(made: list[tuple[str, int]], libraries: Sequence[Library]) -> None:
    present = {label for _, label in made}
    for label, library in enumerate(libraries):
        if label not in present:
            raise DataError(
                f"no docstrings of {library.name}: its source files (*.py) were looked for here",
                file=str(library.folder),
                key="data.source",
                mend="install the package with its source files",
            )


def _read(path: Path) -> list[tuple[str, int]] | None:
    """The documents, or None where the content is not what its first line, the SHA-256 of the rest, says."""
    digest, _, body = path.read_bytes().partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        return None
    return [(text, label) for text, label in json.loads(body)]


def _write(path: Path, made: list[tuple[str, int]]) -> None:
    """Whole or not at all: another process may look at the same time."""
    body = json.dumps(made, ensure_ascii=True).encode()
    content = hashlib.sha256(body).hexdigest().encode() + b"\n" + body
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
            file.write(content)
        Path(file.name).replace(path)
    except OSError as error:
        raise DataError(
            f"the documents cannot be kept: {error.strerror}",
            file=str(path),
            key="data.cache",
            mend="set data.cache to a folder that can be written",
        ) from error
