"""Tiny-ImageNet as in its archive: 200 classes, 100,000 pictures for training and 10,000 for validation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from alray.config.sections.task import TaskSection
from alray.core.errors import DataError, DataMissing
from alray.data.class_folders import is_hidden, require_files
from alray.data.picture import Picture, PictureSet
from alray.data.source import Normalisation, Source, SplitName
from alray.data.text_file import read_text
from alray.parts.sources.tiny_imagenet.keys import TinyImagenet

_SIZE = (64, 64)  # height and width, pixels
_ARCHIVE = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"


class TinyImagenetSource(Source):
    """Reads `wnids.txt` (one class on each line), `train/<class>/images/*.JPEG` and `val/val_annotations.txt`.

    The pictures of the test folder have no labels, so the validation pictures, `val/images`, are the test set. Classes
    are sorted by their WordNet number. `words.txt`, if it exists, gives their names. Pictures become RGB, are scaled to
    0..1 and normalised by the means and standard deviations of the training set, taken from the thesis's code.
    """

    normalisation = Normalisation((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821))

    def __init__(self, *, root: Path, size: tuple[int, int] | None) -> None:
        """
        Args:
            root: the folder with `wnids.txt`.
            size: height and width in pixels; None keeps 64 x 64.
        """
        self._root = root
        self._size = size or _SIZE
        self.picture = Picture((3, *self._size), self._size)
        self._wnids = tuple(sorted(set(read_text(_required(root / "wnids.txt")).split())))
        if not self._wnids:
            raise DataError("the file has no classes", file=str(root / "wnids.txt"), hint=f"unpack {_ARCHIVE} again")
        self.classes = self._names()

    def open(self, split: SplitName) -> PictureSet:
        paths, labels = self._train() if split == "train" else self._validation()
        return PictureSet(tuple(paths), tuple(labels), self._size)

    def files(self, split: SplitName) -> Sequence[Path]:
        return self.open(split).paths

    def _train(self) -> tuple[list[Path], list[int]]:
        paths: list[Path] = []
        labels: list[int] = []
        for label, wnid in enumerate(self._wnids):
            folder = self._root / "train" / wnid / "images"
            pictures = [path for path in folder.glob("*.JPEG") if not is_hidden(path, folder)]
            found = require_files(pictures, folder, "data.root", holding="pictures (*.JPEG)")
            paths.extend(found)
            labels.extend([label] * len(found))
        return paths, labels

    def _validation(self) -> tuple[list[Path], list[int]]:
        """Read the annotations. Their columns are separated by tabs: file, class, and a box that is not used."""
        annotations = _required(self._root / "val" / "val_annotations.txt")
        numbers = {wnid: label for label, wnid in enumerate(self._wnids)}
        paths: list[Path] = []
        labels: list[int] = []
        for line, text in enumerate(read_text(annotations).splitlines(), start=1):
            columns = text.split("\t")
            path = annotations.parent / "images" / columns[0]
            label = numbers.get(columns[1]) if len(columns) > 1 else None
            if label is None or not path.is_file():
                raise DataError(
                    "this line names no picture of val/images"
                    if label is not None
                    else "this line names no class of wnids.txt",
                    file=str(annotations),
                    line=line,
                    hint=f"write a file, a class and a box, separated by tabs, or unpack {_ARCHIVE} again",
                )
            paths.append(path)
            labels.append(label)
        return paths, labels

    def _names(self) -> tuple[str, ...]:
        """Return the first word of each class.

        A class without words is named by its WordNet number. If two classes have the same word, the number is added.
        """
        words = self._root / "words.txt"
        if not words.is_file():
            return self._wnids
        first: dict[str, str] = {}
        for text in read_text(words).splitlines():
            wnid, _, names = text.partition("\t")
            first[wnid] = names.partition(",")[0].strip() or wnid
        names_of = [first.get(wnid, wnid) for wnid in self._wnids]
        times = Counter(names_of)
        return tuple(
            name if times[name] == 1 else f"{name} ({wnid})" for name, wnid in zip(names_of, self._wnids, strict=True)
        )


def _required(path: Path) -> Path:
    if not path.is_file():
        raise DataMissing(
            "this file of Tiny-ImageNet is missing",
            file=str(path),
            key="data.root",
            hint=f"unpack {_ARCHIVE} and set data.root to its folder tiny-imagenet-200",
        )
    return path


def opened(section: TinyImagenet, task: TaskSection) -> Source:
    """The source of a spec's section, the same for all tasks. `implementation` in keys.py names this function, and
    `alray.data.opening.make_source` calls it."""
    return TinyImagenetSource(root=section.root, size=section.size)
