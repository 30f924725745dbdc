"""Torchvision's sets for classification: read from disk, or downloaded by torchvision if the spec allows it."""

from __future__ import annotations

import contextlib
import gzip
import inspect
import math
import struct
import sys
import zlib
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor
from torchvision import datasets
from torchvision.datasets.utils import check_integrity

from alray.config.sections.task import TaskSection
from alray.core.errors import DataError, DataMissing
from alray.data.image_folder import PictureSet
from alray.data.picture import Picture, resize
from alray.data.source import Normalisation, SampleSet, Source, SplitName, TensorSet
from alray.parts.sources.torchvision.keys import Torchvision
from alray.parts.sources.torchvision.known import KNOWN

# Published means and standard deviations of the training sets, for values scaled to 0..1.
_NORMALISATION = {
    "CIFAR10": Normalisation((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "CIFAR100": Normalisation((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "MNIST": Normalisation((0.1307,), (0.3081,)),
    "FashionMNIST": Normalisation((0.2860,), (0.3530,)),
}
_IMAGENET = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_IDX = ("MNIST", "FashionMNIST", "KMNIST")
_IDX_PREFIX: dict[SplitName, str] = {"train": "train", "test": "t10k"}


def make_torchvision(
    *, dataset: str, root: Path, download: bool, options: Mapping[str, Any], size: tuple[int, int] | None
) -> Source:
    """Make the source of one of torchvision's data sets.

    Args:
        root: folder of the files.
        download: whether to download missing files.
        options: further arguments of torchvision's class.
        size: height and width in pixels; None keeps the size of the set.
    """
    if dataset == "EMNIST" or dataset in _IDX:
        return Idx(dataset, root, download=download, options=options, size=size)
    kind = _PICTURES.get(dataset)
    if kind is None:
        return Arrays(dataset, _ARRAYS[dataset], root, download=download, options=options, size=size)
    if size is None:
        shape = KNOWN[dataset].shape
        assert shape is not None, "the spec's checks demand a size for pictures that differ in it"
        size = (shape[1], shape[2])
    return Pictures(dataset, kind, root, download=download, options=options, size=size)


_REFUSED = (ValueError, TypeError, AssertionError, LookupError)
"""What torchvision's classes raise for options that they do not know, and for files that are damaged."""


def _path(path: Any) -> Path:
    """The loader that torchvision's classes get: a picture is decoded where its mini-batch is read."""
    return Path(path)


@dataclass(frozen=True)
class _Kind:
    """How torchvision's class gives its sets.

    Attributes:
        splits: the arguments that select each set.
        options: those that the spec may change.
        downloads: whether torchvision downloads the set.
        paths: the files and labels of a set whose class has no argument `loader`.
    """

    splits: Mapping[SplitName, Mapping[str, Any]]
    options: Mapping[str, Any] = field(default_factory=dict)
    downloads: bool = True
    paths: Callable[[Any], Iterable[tuple[Any, int]]] | None = None


def _named(train: str, test: str | None = "test", validation: str | None = None) -> Mapping[SplitName, Any]:
    """The argument `split` of each set."""
    names: dict[SplitName, str | None] = {"train": train, "test": test, "validation": validation}
    return {name: {"split": split} for name, split in names.items() if split is not None}


_FLAG: Mapping[SplitName, Any] = {"train": {"train": True}, "test": {"train": False}}
_WHOLE: Mapping[SplitName, Any] = {"train": {}}
_ARRAYS = {
    "CIFAR10": _Kind(_FLAG),
    "CIFAR100": _Kind(_FLAG),
    "QMNIST": _Kind(_FLAG),
    "USPS": _Kind(_FLAG),
    "SEMEION": _Kind(_WHOLE),
    "SVHN": _Kind(_named("train")),
    "STL10": _Kind(_named("train"), {"folds": None}),
}
"""Sets that torchvision reads into memory."""
_PICTURES = {
    "Caltech101": _Kind(
        _WHOLE,
        paths=lambda found: (
            (f"{found.root}/101_ObjectCategories/{found.categories[label]}/image_{number:04d}.jpg", label)
            for number, label in zip(found.index, found.y, strict=True)
        ),
    ),
    "Caltech256": _Kind(
        _WHOLE,
        paths=lambda found: (
            (f"{found.root}/256_ObjectCategories/{found.categories[label]}/{label + 1:03d}_{number:04d}.jpg", label)
            for number, label in zip(found.index, found.y, strict=True)
        ),
    ),
    "Country211": _Kind(_named("train", validation="valid")),
    "DTD": _Kind(_named("train", validation="val"), {"partition": 1}),
    "EuroSAT": _Kind(_WHOLE),
    "FGVCAircraft": _Kind(_named("trainval"), {"annotation_level": "variant"}),
    "Flowers102": _Kind(_named("train", validation="val")),
    "Food101": _Kind(_named("train")),
    "GTSRB": _Kind(_named("train"), paths=lambda found: found._samples),
    "INaturalist": _Kind(
        {"train": {"version": "2021_train"}, "test": {"version": "2021_valid"}}, {"target_type": "full"}
    ),
    "ImageNet": _Kind(_named("train", "val"), downloads=False),
    "Imagenette": _Kind(_named("train", "val"), {"size": "full"}),
    "OxfordIIITPet": _Kind(_named("trainval"), paths=lambda found: zip(found._images, found._labels, strict=True)),
    "Places365": _Kind(_named("train-standard", "val"), {"small": False}),
    "RenderedSST2": _Kind(_named("train", validation="val")),
    "StanfordCars": _Kind(_named("train")),
    "SUN397": _Kind(_WHOLE),
}
"""Sets of picture files."""


class TorchvisionSource(Source):
    """A set that torchvision's class of its name finds and checks."""

    def __init__(self, dataset: str, kind: _Kind, root: Path, *, download: bool, options: Mapping[str, Any]) -> None:
        self._dataset = dataset
        self._kind = kind
        self._class: Any = getattr(datasets, dataset)
        self._root = root
        _require_options(dataset, options, known=kind.options)
        self._options = {**kind.options, **options}
        folder = getattr(self._class, "base_folder", None)
        self._looked_for = f"the folder {folder}" if isinstance(folder, str) else "what torchvision unpacks"
        if download and not kind.downloads:
            raise DataError(
                f"torchvision cannot download {dataset}",
                key="data.download",
                hint=f"set data.download=false, and copy the files to data.root; see {_page(dataset)}",
            )
        self._download = download
        self._train = self._read("train")
        self._classes = _class_names(self._train)

    @property
    def classes(self) -> tuple[str, ...]:
        return self._classes or tuple(map(str, range(self._num_classes())))

    def open(self, split: SplitName) -> SampleSet | None:
        if split not in self._kind.splits:
            return None
        return self._set_of(self._train if split == "train" else self._read(split))

    @abstractmethod
    def _set_of(self, found: Any) -> SampleSet:
        """The samples of an object of torchvision's class."""

    @abstractmethod
    def _num_classes(self) -> int:
        """The number of classes of a set that does not know their names."""

    def _read(self, split: SplitName) -> Any:
        """The object of torchvision's class for a set, downloaded if it is missing and the spec allows it."""
        try:
            return self._find(split)
        except DataMissing:
            if not self._download:
                raise
        given = {**self._kind.splits[split], **self._options}
        _download(self._class, given, self._dataset, self._root, self._looked_for)
        return self._find(split)

    def _find(self, split: SplitName) -> Any:
        given = {**self._kind.splits[split], **self._options}
        if self._kind.downloads:
            given["download"] = False
        if "loader" in inspect.signature(self._class).parameters:
            given["loader"] = _path
        if not self._root.is_dir():  # some classes would make it
            raise self._missing("there is no such folder")
        try:
            return self._class(str(self._root), **given)
        except (RuntimeError, FileNotFoundError) as error:  # torchvision raises them for what is missing or damaged
            raise self._missing(" ".join(str(error).split())) from error
        except _REFUSED as error:
            message = " ".join(str(error).split()) or type(error).__name__
            raise DataError(
                f"torchvision cannot read {self._dataset}: {message}",
                file=str(self._root),
                key="data.options" if self._options else "data.root",
                hint=f"correct data.options, or download the files again; see {_page(self._dataset)}",
            ) from error

    def _missing(self, why: str) -> DataMissing:
        address = getattr(self._class, "url", None)
        message = f"{self._dataset} is missing or damaged: looked for {self._looked_for} ({why})"
        return _missing(message, self._root, address if isinstance(address, str) else _page(self._dataset))


class Arrays(TorchvisionSource):
    """Pictures of one size that are kept in memory."""

    def __init__(
        self,
        dataset: str,
        kind: _Kind,
        root: Path,
        *,
        download: bool,
        options: Mapping[str, Any],
        size: tuple[int, int] | None,
    ) -> None:
        super().__init__(dataset, kind, root, download=download, options=options)
        shape = tuple(_pixels(self._train).shape[1:])
        half = Normalisation((0.5,) * shape[0], (0.5,) * shape[0])
        self.normalisation = _NORMALISATION.get(dataset, half)
        self._size = size or shape[1:]
        self.picture = Picture(shape, self._size)

    def _find(self, split: SplitName) -> Any:
        # The classes of the others check what they read.
        if self._dataset == "USPS":
            _, name, md5 = self._class.split_list[split]
            if not check_integrity(str(self._root / name), md5):
                raise self._missing(f"no complete {name}")
        return super()._find(split)

    def _set_of(self, found: Any) -> TensorSet:
        return _in_memory(_pixels(found), _labels(found), self._size)

    def _num_classes(self) -> int:
        return int(_labels(self._train).max()) + 1


class Pictures(TorchvisionSource):
    """Files of pictures, resized when they are read."""

    normalisation = _IMAGENET

    def __init__(
        self,
        dataset: str,
        kind: _Kind,
        root: Path,
        *,
        download: bool,
        options: Mapping[str, Any],
        size: tuple[int, int],
    ) -> None:
        super().__init__(dataset, kind, root, download=download, options=options)
        self._size = size
        self.picture = Picture((3, *size), size)

    def files(self, split: SplitName) -> Sequence[Path]:
        found = self.open(split)
        return found.paths if isinstance(found, PictureSet) else ()

    def _set_of(self, found: Any) -> PictureSet:
        pairs = self._kind.paths(found) if self._kind.paths else (found[index] for index in range(len(found)))
        paths, labels = zip(*pairs, strict=True) if len(found) else ((), ())
        return PictureSet(tuple(map(Path, paths)), tuple(map(int, labels)), self._size)

    def _num_classes(self) -> int:
        return max(self._set_of(self._train).labels, default=-1) + 1


def _class_names(found: Any) -> tuple[str, ...] | None:
    """The names that torchvision knows, each once; of several words for a class the first."""
    attributes = ("classes", "categories", "all_categories")
    known = next((getattr(found, name) for name in attributes if hasattr(found, name)), None)
    if known is None:
        return None
    names = [str(name[0]) if isinstance(name, tuple) else str(name) for name in known]
    times = Counter(names)
    return tuple(name if times[name] == 1 else f"{name} ({number})" for number, name in enumerate(names))


def _pixels(found: Any) -> Tensor:
    """The pictures of a set in memory, [N, channels, height, width] uint8."""
    images = torch.as_tensor(found.data)
    if images.dim() == 3:
        return images.unsqueeze(1)
    return images if images.shape[1] in (1, 3) else images.permute(0, 3, 1, 2)


def _labels(found: Any) -> Tensor:
    """[N] int64. QMNIST has the class first, and then where a digit comes from."""
    labels = torch.as_tensor(found.targets if hasattr(found, "targets") else found.labels).to(torch.int64)
    return labels if labels.dim() == 1 else labels[:, 0]


def _require_options(dataset: str, options: Mapping[str, Any], *, known: Iterable[str]) -> None:
    wrong = [name for name in options if name not in known]
    if wrong:
        listed = ", ".join(known)
        raise DataError(
            f"{dataset} has no option `{wrong[0]}`",
            key="data.options",
            hint=f"its options are {listed}" if listed else "leave data.options out",
        )


def _page(dataset: str) -> str:
    return f"https://docs.pytorch.org/vision/stable/generated/torchvision.datasets.{dataset}.html"


class Idx(Source):
    """Grayscale pictures of 28 x 28 pixels in IDX files, plain or .gz, in `root` or in `root`/<dataset>/raw."""

    def __init__(
        self, dataset: str, root: Path, *, download: bool, options: Mapping[str, Any], size: tuple[int, int] | None
    ) -> None:
        self.normalisation = _NORMALISATION.get(dataset, Normalisation((0.5,), (0.5,)))
        self._dataset = dataset
        self._kind: Any = getattr(datasets, dataset)
        self._options = dict(options)
        self._prefix, self._classes = _IDX_PREFIX, tuple(getattr(self._kind, "classes", ()))
        _require_options(dataset, options, known=("split",) if dataset == "EMNIST" else ())
        if dataset == "EMNIST":
            split = str(self._options.setdefault("split", "balanced"))
            if split not in self._kind.splits:
                known = ", ".join(self._kind.splits)
                raise DataError(f"EMNIST has no split `{split}`", key="data.options", hint=f"its splits are {known}")
            self._prefix = {"train": f"emnist-{split}-train", "test": f"emnist-{split}-test"}
            self._classes = tuple(self._kind.classes_split_dict[split])
        self._root = root
        self._download = download
        self._size = size or (28, 28)
        self.picture = Picture((1, 28, 28), self._size)

    @property
    def classes(self) -> tuple[str, ...]:
        return self._classes

    def open(self, split: SplitName) -> TensorSet:
        names = [f"{self._prefix[split]}-images-idx3-ubyte", f"{self._prefix[split]}-labels-idx1-ubyte"]
        if self._download and any(self._find(name) is None for name in names):
            _download(self._kind, self._options, self._dataset, self._root, ", ".join(names))
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
            getattr(self._kind, "url", self._kind.mirrors[0]),  # EMNIST has another address
        )


def _in_memory(images: Tensor, labels: Tensor, size: tuple[int, ...]) -> TensorSet:
    whole = images.clone(memory_format=torch.contiguous_format)
    return TensorSet(resize(whole, (size[0], size[1])), labels)


def _download(kind: type, given: Mapping[str, Any], dataset: str, root: Path, looked_for: str) -> None:
    """Download missing files to `root`.

    The progress goes to standard error.

    Args:
        given: the arguments of the class.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            kind(str(root), **given, download=True)
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
"""The most bytes of an unpacked IDX file. The largest of these sets has 47 MB; 1 MB can unpack to a gigabyte."""


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


def opened(section: Torchvision, task: TaskSection) -> Source:
    return make_torchvision(
        dataset=section.dataset,
        root=section.root,
        download=section.download,
        options=section.options,
        size=section.size,
    )
