"""Pictures in folders, with one subfolder for each class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from torch import Tensor

from alray.data.class_folders import class_folders, class_of, require_files, require_known
from alray.data.picture import Picture, read_image
from alray.data.source import Normalisation, Source, SplitName


@dataclass(frozen=True)
class PictureSet:
    """Pictures that are decoded when they are read. An entry is uint8 [3, *size] and a label.

    size: height and width, pixels.
    """

    paths: tuple[Path, ...]
    labels: tuple[int, ...]
    size: tuple[int, int]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return read_image(self.paths[index], (3, *self.size)), self.labels[index]


class ImageFolder(Source):
    """Folders for training, and optionally for validation and for the test, each with one subfolder for each class.

    The sorted names of the training subfolders are the classes. A picture is any file below a subfolder with an ending
    that Pillow knows, except hidden files; pictures are read in sorted order. They become RGB, scaled to -1..1.
    """

    normalisation = Normalisation(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))

    def __init__(self, *, train: Path, test: Path | None, validation: Path | None, size: tuple[int, int]) -> None:
        """size: height and width to which every picture is resized (not cropped), in pixels."""
        self._folders: dict[SplitName, Path | None] = {"train": train, "test": test, "validation": validation}
        self._size = size
        self.picture = Picture((3, *size), size)
        self._classes = tuple(class_of(folder) for folder in _subfolders(train, "data.train"))

    @property
    def classes(self) -> tuple[str, ...]:
        return self._classes

    def open(self, split: SplitName) -> PictureSet | None:
        folder = self._folders[split]
        if folder is None:
            return None
        paths: list[Path] = []
        labels: list[int] = []
        for subfolder in _subfolders(folder, f"data.{split}"):
            label = require_known(subfolder, self._classes, f"data.{split}")
            pictures = _pictures(subfolder, f"data.{split}")
            paths.extend(pictures)
            labels.extend([label] * len(pictures))
        return PictureSet(tuple(paths), tuple(labels), self._size)

    def files(self, split: SplitName) -> Sequence[Path]:
        found = self.open(split)
        return () if found is None else found.paths


def _subfolders(folder: Path, key: str) -> list[Path]:
    return class_folders(folder, key, holding="pictures")


def _pictures(subfolder: Path, key: str) -> list[Path]:
    endings = Image.registered_extensions()
    found = [
        path
        for path in subfolder.rglob("*")
        if path.suffix.lower() in endings and not path.name.startswith(".") and path.is_file()
    ]
    return require_files(found, subfolder, key, holding="pictures")
