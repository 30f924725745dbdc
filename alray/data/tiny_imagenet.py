"""Tiny-ImageNet as its archive unpacks: 200 classes, 100,000 training pictures, 10,000 of validation."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from alray.data.class_folders import require_files
from alray.data.image_folder import PictureSet
from alray.data.picture import Picture
from alray.data.source import Normalisation, Source, SplitName
from alray.data.text_file import read_text
from alray.errors import DataError

_SIZE = 64  # pixels of height and width
_ARCHIVE = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"


class TinyImagenet(Source):
    """`wnids.txt` (a class a line), `train/<class>/images/*.JPEG`, `val/images` and `val/val_annotations.txt`.

    The pictures of the test folder have no labels, so those of validation are the test set. Classes are sorted by
    their WordNet number; `words.txt`, where it is there, gives their names. Pictures become RGB and are normalised by
    the means and standard deviations of the training set that the thesis's code has (values scaled to 0..1).
    """

    normalisation = Normalisation((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821))

    def __init__(self, *, root: Path, image_size: int | None) -> None:
        """root: the folder of `wnids.txt`; image_size: pixels of height and width, None leaves 64."""
        self._root = root
        self._size = _SIZE if image_size is None else image_size
        self.picture = Picture((3, self._size, self._size), (self._size, self._size))
        self._wnids = tuple(sorted(set(read_text(_required(root / "wnids.txt")).split())))
        if not self._wnids:
            raise DataError("there is no class in it", file=str(root / "wnids.txt"), mend=f"unpack {_ARCHIVE} anew")
        self._classes = self._names()

    @property
    def classes(self) -> tuple[str, ...]:
        return self._classes

    def open(self, split: SplitName) -> PictureSet:
        paths, labels = self._train() if split == "train" else self._validation()
        return PictureSet(tuple(paths), tuple(labels), self._size)

    def _train(self) -> tuple[list[Path], list[int]]:
        paths: list[Path] = []
        labels: list[int] = []
        for label, wnid in enumerate(self._wnids):
            folder = self._root / "train" / wnid / "images"
            found = require_files(list(folder.glob("*.JPEG")), folder, "data.root", holding="pictures (*.JPEG)")
            paths.extend(found)
            labels.extend([label] * len(found))
        return paths, labels

    def _validation(self) -> tuple[list[Path], list[int]]:
        """From the annotations, whose columns are separated by tabs: file, class, and a box that is not used."""
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
                    "the line names no picture of val/images" if label is not None else "the line names no class",
                    file=str(annotations),
                    line=line,
                    mend=f"lines are file, class of wnids.txt, and a box, between tabs; or unpack {_ARCHIVE} anew",
                )
            paths.append(path)
            labels.append(label)
        return paths, labels

    def _names(self) -> tuple[str, ...]:
        """The first of each class's words; the WordNet number where there are none, or two classes share them."""
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
        raise DataError(
            "Tiny-ImageNet is not there: file not found",
            file=str(path),
            key="data.root",
            mend=f"unpack {_ARCHIVE} and give its folder tiny-imagenet-200",
        )
    return path
