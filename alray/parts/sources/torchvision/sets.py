"""The sets that a class of torchvision finds on the disk, or downloads if the spec allows it."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from torchvision import datasets

from alray.core.errors import DataError, DataMissing
from alray.data.source import SplitName
from alray.parts.sources.torchvision.keys import Torchvision

_REFUSED = (ValueError, TypeError, AssertionError, LookupError)
"""What torchvision's classes raise for options that they do not know, and for files that are damaged."""
_GIVEN = {"root", "split", "train", "download", "loader", "transform", "transforms", "target_transform"}
"""The arguments of torchvision's classes that are no options of a spec."""


ARRAYS = ("CIFAR10", "CIFAR100", "STL10", "SVHN")
"""The classes that keep their pictures in memory, and take no `loader`."""
_VALIDATED = ("ImageNet", "Imagenette")
"""The classes without a test set: their validation set is the test set."""


class Sets:
    """The sets of one class of torchvision that lets us read its files."""

    def __init__(self, section: Torchvision) -> None:
        """Raises DataError if there is no training set, an option is not known, or the class has another form."""
        self.dataset = section.dataset
        self._class: Any = getattr(datasets, self.dataset)
        self._root = section.root
        self._takes = arguments(self._class)
        # Of classes that nobody has looked at, those that read more than the names of files might unpickle them.
        if self.dataset not in ARRAYS and not {"root", "loader"} <= self._takes.keys():
            raise DataError(
                f"alray cannot read torchvision's {self.dataset}: its constructor takes no `root` and `loader`",
                key="data.dataset",
                hint="use folders of images, or a source of your own",
            )
        require_options(self.dataset, section.options, known=self._takes.keys() - _GIVEN)
        self._options = section.options
        folder = getattr(self._class, "base_folder", None)
        self._looked_for = f"the folder {folder}" if isinstance(folder, str) else "what torchvision unpacks"
        if section.download and "download" not in self._takes:
            raise DataError(
                f"torchvision cannot download {self.dataset}",
                key="data.download",
                hint=f"set data.download=false, and copy the files to data.root; see {_page(self.dataset)}",
            )
        self._download = section.download
        self.train = self.of("train")

    def of(self, split: SplitName) -> Any:
        """The object of torchvision's class for a set, downloaded if it is missing and the spec allows it; None if
        there is no such set. A picture of it is the path of its file, if the class lets us choose.

        Raises DataError if the files are missing or damaged.
        """
        if split == "test" and not {"split", "train"} & self._takes.keys():
            return None
        given = {**self._choosing(split), **self._options}
        try:
            return self._find(given)
        except DataMissing:
            if not self._download:
                raise
        download(self._class, given, self.dataset, self._root, self._looked_for)
        return self._find(given)

    def _choosing(self, split: SplitName) -> dict[str, Any]:
        """The argument that chooses a set."""
        if "split" in self._takes:
            return {"split": "val" if split == "test" and self.dataset in _VALIDATED else split}
        return {"train": split == "train"} if "train" in self._takes else {}

    def _find(self, given: dict[str, Any]) -> Any:
        reading: dict[str, Any] = {"download": False} if "download" in self._takes else {}
        if "loader" in self._takes:
            reading["loader"] = Path  # a picture is decoded where its mini-batch is read
        if not self._root.is_dir():  # some classes would make it
            raise self._missing("there is no such folder")
        try:
            return self._class(root=str(self._root), **given, **reading)
        except (RuntimeError, FileNotFoundError) as error:  # torchvision raises them for what is missing or damaged
            raise self._missing(" ".join(str(error).split())) from error
        except _REFUSED as error:
            raise self.unreadable(" ".join(str(error).split()) or type(error).__name__) from error

    def unreadable(self, why: str) -> DataError:
        """The error of a set that is there, and of which nothing can be made."""
        return DataError(
            f"torchvision cannot read {self.dataset}: {why}",
            file=str(self._root),
            key="data.options" if self._options else "data.root",
            hint=f"correct data.options, or download the files again; see {_page(self.dataset)}",
        )

    def _missing(self, why: str) -> DataMissing:
        address = getattr(self._class, "url", None)
        message = f"{self.dataset} is missing or damaged: looked for {self._looked_for} ({why})"
        return missing(message, self._root, address if isinstance(address, str) else _page(self.dataset))


def arguments(kind: type) -> dict[str, inspect.Parameter]:
    """The arguments of a class. Where it passes others on to its base, these are among them."""
    found: dict[str, inspect.Parameter] = {}
    for base in kind.__mro__:
        own = inspect.signature(base.__init__).parameters  # type: ignore[misc]  # of a class, not of an object
        found |= {name: each for name, each in own.items() if name not in found}
        if not any(each.kind is each.VAR_KEYWORD for each in own.values()):
            break
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: each for name, each in found.items() if each.kind in named and name != "self"}


def require_options(dataset: str, options: Mapping[str, Any], *, known: Collection[str]) -> None:
    """Raise DataError for an option that a set does not have."""
    wrong = [name for name in options if name not in known]
    if wrong:
        listed = ", ".join(sorted(known))
        raise DataError(
            f"{dataset} has no option `{wrong[0]}`",
            key="data.options",
            hint=f"its options are {listed}" if listed else "leave data.options out",
        )


def download(kind: type, given: Mapping[str, Any], dataset: str, root: Path, looked_for: str) -> None:
    """Download missing files to `root`.

    The progress goes to standard error.

    Args:
        given: the arguments of the class.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            kind(root=str(root), **given, download=True)
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{dataset} is missing (looked for {looked_for}), and the download failed: {reason}",
            file=str(root),
            key="data.download",
            hint="run again with a network, or copy the files to this folder",
        ) from error


def missing(message: str, root: Path, address: str) -> DataMissing:
    """The error of files that are not there.

    Args:
        address: where they are to be had.
    """
    return DataMissing(
        message,
        file=str(root),
        key="data.root",
        hint=f"set data.download=true, or copy it to this folder from {address}",
    )


def _page(dataset: str) -> str:
    return f"https://docs.pytorch.org/vision/stable/generated/torchvision.datasets.{dataset}.html"
