"""The sets of torchvision whose files are in the format IDX. alray reads them itself, also as .gz files."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor
from torchvision import datasets

from alray.core.errors import DataError
from alray.data.picture import Picture, resize
from alray.data.source import Normalisation, Source, SplitName, TensorSet
from alray.parts.sources.torchvision.keys import Torchvision
from alray.parts.sources.torchvision.sets import download, missing, require_options

IDX = ("MNIST", "FashionMNIST", "KMNIST", "EMNIST")
_PUBLISHED = {"MNIST": Normalisation((0.1307,), (0.3081,)), "FashionMNIST": Normalisation((0.2860,), (0.3530,))}


class Idx(Source):
    """Grayscale pictures of 28 x 28 pixels in IDX files, plain or .gz, in `root` or in `root`/<dataset>/raw."""

    def __init__(self, section: Torchvision) -> None:
        """Raises DataError for an option that the set does not have."""
        self.normalisation = _PUBLISHED.get(section.dataset, Normalisation((0.5,), (0.5,)))
        self._dataset = section.dataset
        self._kind: Any = getattr(datasets, section.dataset)
        self._options = dict(section.options)
        self._root = section.root
        self._download = section.download
        self._size = section.size or (28, 28)
        self.picture = Picture((1, 28, 28), self._size)
        has_splits = self._dataset == "EMNIST"
        require_options(self._dataset, self._options, known=("split",) if has_splits else ())
        self._prefix: dict[SplitName, str] = {"train": "train", "test": "t10k"}
        self.classes = tuple(getattr(self._kind, "classes", ()))
        if has_splits:
            split = str(self._options.setdefault("split", "balanced"))
            if split not in self._kind.splits:
                known = ", ".join(self._kind.splits)
                raise DataError(f"EMNIST has no split `{split}`", key="data.options", hint=f"its splits are {known}")
            self._prefix = {"train": f"emnist-{split}-train", "test": f"emnist-{split}-test"}
            self.classes = tuple(self._kind.classes_split_dict[split])

    def open(self, split: SplitName) -> TensorSet:
        names = [f"{self._prefix[split]}-images-idx3-ubyte", f"{self._prefix[split]}-labels-idx1-ubyte"]
        if self._download and any(self._find(name) is None for name in names):
            download(self._kind, self._options, self._dataset, self._root, ", ".join(names))
        images_path, labels_path = map(self._require, names)
        images, labels = read_idx(images_path, 3), read_idx(labels_path, 1)
        if len(images) != len(labels):
            raise DataError(
                f"there are {len(labels)} labels for the {len(images)} pictures of {images_path.name}",
                file=str(labels_path),
                hint="download both files again",
            )
        return TensorSet(resize(images.unsqueeze(1), self._size), labels.to(torch.int64))

    def _find(self, name: str) -> Path | None:
        for folder in (self._root, self._root / self._dataset / "raw"):
            for path in (folder / name, folder / f"{name}.gz"):
                if path.is_file():
                    return path
        return None

    def _require(self, name: str) -> Path:
        """The file of this name. Raises DataMissing if there is none."""
        if (path := self._find(name)) is not None:
            return path
        raise missing(
            f"{self._dataset} is missing: looked for {name} (or {name}.gz) here and in {self._dataset}/raw",
            self._root,
            getattr(self._kind, "url", self._kind.mirrors[0]),  # EMNIST has an address of its own
        )


_UNSIGNED_BYTE = 0x08
_MOST_BYTES = 1 << 30
"""The most bytes of an unpacked IDX file. The largest of these sets, EMNIST's `byclass`, has 550 MB; 1 MB can unpack
to a gigabyte."""


def read_idx(path: Path, num_dimensions: int) -> Tensor:
    """Read a uint8 array of `num_dimensions` dimensions from an IDX file, plain or .gz.

    Raises DataError if the file is damaged or has another type or number of dimensions.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _damaged(path, str(error)) from error
    if len(content) > _MOST_BYTES:
        raise _damaged(path, f"it has more than {_MOST_BYTES:,} bytes, unpacked")
    header = 4 + 4 * num_dimensions
    if len(content) < header or content[:4] != bytes((0, 0, _UNSIGNED_BYTE, num_dimensions)):
        raise _damaged(path, f"it has no header of an IDX file of bytes with {num_dimensions} dimensions")
    shape = struct.unpack(f">{num_dimensions}I", content[4:header])
    if len(content) - header != math.prod(shape):
        raise _damaged(path, f"its header says {list(shape)} values, but it has {len(content) - header}")
    return torch.from_numpy(numpy.frombuffer(content, numpy.uint8, offset=header).reshape(shape).copy())


def _damaged(path: Path, why: str) -> DataError:
    return DataError(f"damaged IDX file: {why}", file=str(path), hint="remove the file and download it again")
