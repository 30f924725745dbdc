"""CIFAR-10, CIFAR-100, MNIST and Fashion-MNIST: read from disk, or downloaded by torchvision if the spec allows it."""

from __future__ import annotations

import contextlib
import gzip
import math
import struct
import sys
import zlib
from pathlib import Path
from typing import Literal

import numpy
import torch
from torch import Tensor
from torchvision import datasets

from alray.data.picture import Picture, resize
from alray.data.source import Normalisation, Source, SplitName, TensorSet
from alray.errors import DataError, DataMissing

Name = Literal["CIFAR10", "CIFAR100", "MNIST", "FashionMNIST"]

# Published means and standard deviations of the training sets, for values scaled to 0..1.
_NORMALISATION = {
    "CIFAR10": Normalisation((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "CIFAR100": Normalisation((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "MNIST": Normalisation((0.1307,), (0.3081,)),
    "FashionMNIST": Normalisation((0.2860,), (0.3530,)),
}
_CIFAR = {"CIFAR10": datasets.CIFAR10, "CIFAR100": datasets.CIFAR100}
_IDX = {"MNIST": datasets.MNIST, "FashionMNIST": datasets.FashionMNIST}
_IDX_PREFIX: dict[SplitName, str] = {"train": "train", "test": "t10k"}


def make_torchvision(*, dataset: Name, root: Path, download: bool, image_size: int | None) -> Source:
    """Make the source of one of torchvision's data sets.

    root: folder of the files. download: whether to download missing files. image_size: height and width in pixels;
    None keeps the size of the set.
    """
    if dataset in _CIFAR:
        return Cifar(dataset, root, download=download, image_size=image_size)
    return Idx(dataset, root, download=download, image_size=image_size)


class Cifar(Source):
    """RGB pictures of 32 x 32 pixels, in the folder that torchvision unpacks (such as cifar-10-batches-py)."""

    def __init__(self, dataset: Name, root: Path, *, download: bool, image_size: int | None) -> None:
        self.normalisation = _NORMALISATION[dataset]
        self._dataset = dataset
        self._root = root
        self._size = 32 if image_size is None else image_size
        self.picture = Picture((3, 32, 32), (self._size, self._size))
        self._classes = tuple(self._read("test", download=download).classes)

    @property
    def classes(self) -> tuple[str, ...]:
        return self._classes

    def open(self, split: SplitName) -> TensorSet:
        pictures = self._read(split, download=False)
        images = torch.from_numpy(pictures.data).permute(0, 3, 1, 2)
        labels = torch.tensor(pictures.targets, dtype=torch.int64)
        return _in_memory(images, labels, self._size)

    def _read(self, split: SplitName, *, download: bool) -> datasets.CIFAR10:
        kind = _CIFAR[self._dataset]
        looked_for = f"the folder {kind.base_folder}"
        if download:
            _download(kind, self._dataset, self._root, looked_for)
        try:
            return kind(str(self._root), train=split == "train", download=False)
        except RuntimeError as error:  # torchvision raises it if a file is missing or has another MD5 sum
            message = f"{self._dataset} is missing or damaged: looked for {looked_for}"
            raise _missing(message, self._root, kind.url) from error


class Idx(Source):
    """Grayscale pictures of 28 x 28 pixels in IDX files, plain or .gz, in `root` or in `root`/<dataset>/raw."""

    def __init__(self, dataset: Name, root: Path, *, download: bool, image_size: int | None) -> None:
        self.normalisation = _NORMALISATION[dataset]
        self._dataset = dataset
        self._root = root
        self._download = download
        self._size = 28 if image_size is None else image_size
        self.picture = Picture((1, 28, 28), (self._size, self._size))

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(_IDX[self._dataset].classes)

    def open(self, split: SplitName) -> TensorSet:
        names = [f"{_IDX_PREFIX[split]}-images-idx3-ubyte", f"{_IDX_PREFIX[split]}-labels-idx1-ubyte"]
        if self._download and any(self._find(name) is None for name in names):
            _download(_IDX[self._dataset], self._dataset, self._root, ", ".join(names))
        images_path, labels_path = (self._find(name) or self._raise_missing(name) for name in names)
        images, labels = read_idx(images_path, 3), read_idx(labels_path, 1)
        if len(images) != len(labels):
            raise DataError(
                f"there are {len(labels)} labels for the {len(images)} pictures of {images_path.name}",
                file=str(labels_path),
                hint="download both files again",
            )
        return _in_memory(images.unsqueeze(1), labels.to(torch.int64), self._size)

    def _find(self, name: str) -> Path | None:
        for folder in (self._root, self._root / self._dataset / "raw"):
            for path in (folder / name, folder / f"{name}.gz"):
                if path.is_file():
                    return path
        return None

    def _raise_missing(self, name: str) -> Path:
        raise _missing(
            f"{self._dataset} is missing: looked for {name} (or {name}.gz) here and in {self._dataset}/raw",
            self._root,
            _IDX[self._dataset].mirrors[0],
        )


def _in_memory(images: Tensor, labels: Tensor, size: int) -> TensorSet:
    whole = images.clone(memory_format=torch.contiguous_format)
    return TensorSet(resize(whole, (size, size)), labels)


def _download(kind: type, dataset: Name, root: Path, looked_for: str) -> None:
    """Download missing files to `root`. The progress goes to standard error."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            kind(str(root), train=True, download=True)
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{dataset} is missing (looked for {looked_for}), and the download failed: {reason}",
            file=str(root),
            key="data.download",
            hint="run again with a network, or copy the files to this folder",
        ) from error


def _missing(message: str, root: Path, address: str) -> DataMissing:
    return DataMissing(
        message,
        file=str(root),
        key="data.root",
        hint=f"set data.download=true, or copy it to this folder from {address}",
    )


_UNSIGNED_BYTE = 0x08
_MOST_BYTES = 1 << 30
"""Of an IDX file, unpacked. The largest of these sets has 47 MB; a file of 1 MB can unpack to a gigabyte."""


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
