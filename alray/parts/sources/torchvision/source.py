"""Torchvision's sets of pictures with classes: read from disk, or downloaded by torchvision if the spec allows it."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from alray.config.sections.task import TaskSection
from alray.data.picture import Picture, PictureSet, resize
from alray.data.source import Normalisation, SampleSet, Source, SplitName, TensorSet
from alray.parts.sources.torchvision.idx import IDX, Idx
from alray.parts.sources.torchvision.keys import Torchvision
from alray.parts.sources.torchvision.sets import ARRAYS, Sets


def opened(section: Torchvision, task: TaskSection) -> Source:
    """The source of a spec's section, the same for all tasks. `implementation` in keys.py names this function, and
    `alray.data.opening.make_source` calls it."""
    if section.dataset in IDX:
        return Idx(section)
    sets = Sets(section)
    return Arrays(sets, section) if section.dataset in ARRAYS else Pictures(sets, section)


_PUBLISHED = {
    "CIFAR10": Normalisation((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "CIFAR100": Normalisation((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}


class TorchvisionSource(Source):
    """The sets that torchvision's class of a name finds and checks."""

    def __init__(self, sets: Sets) -> None:
        self._sets = sets
        self.classes = _class_names(sets.train) or tuple(map(str, range(self._num_classes(sets.train))))

    def open(self, split: SplitName) -> SampleSet | None:
        found = self._sets.train if split == "train" else self._sets.of(split)
        return None if found is None else self._set_of(found)

    @abstractmethod
    def _set_of(self, found: Any) -> SampleSet:
        """The samples of an object of torchvision's class."""

    @abstractmethod
    def _num_classes(self, found: Any) -> int:
        """The number of classes of a set that does not know their names."""


class Arrays(TorchvisionSource):
    """Pictures of one size that are kept in memory."""

    def __init__(self, sets: Sets, section: Torchvision) -> None:
        super().__init__(sets)
        shape = tuple(_pixels(sets.train).shape[1:])
        self.normalisation = _PUBLISHED.get(sets.dataset, Normalisation((0.5,) * shape[0], (0.5,) * shape[0]))
        self._size = section.size or (shape[1], shape[2])
        self.picture = Picture(shape, self._size)

    def _set_of(self, found: Any) -> TensorSet:
        whole = _pixels(found).clone(memory_format=torch.contiguous_format)
        return TensorSet(resize(whole, self._size), _labels(found))

    def _num_classes(self, found: Any) -> int:
        return int(_labels(found).max()) + 1


def _pixels(found: Any) -> Tensor:
    """The pictures of a set in memory, [N, channels, height, width] uint8."""
    images = torch.as_tensor(found.data)
    return images if images.shape[1] == 3 else images.permute(0, 3, 1, 2)


def _labels(found: Any) -> Tensor:
    """[N] int64."""
    return torch.as_tensor(found.targets if hasattr(found, "targets") else found.labels).to(torch.int64)


class Pictures(TorchvisionSource):
    """Files of pictures, resized when they are read."""

    normalisation = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # of ImageNet

    def __init__(self, sets: Sets, section: Torchvision) -> None:
        super().__init__(sets)
        assert section.size is not None, "the spec's checks demand it"
        self._size = section.size
        self.picture = Picture((3, *self._size), self._size)

    def files(self, split: SplitName) -> Sequence[Path]:
        found = self.open(split)
        return found.paths if isinstance(found, PictureSet) else ()

    def _set_of(self, found: Any) -> PictureSet:
        entries = list(self._entries(found))
        return PictureSet(tuple(path for path, _ in entries), tuple(label for _, label in entries), self._size)

    def _num_classes(self, found: Any) -> int:
        return max((label for _, label in self._entries(found)), default=-1) + 1

    def _entries(self, found: Any) -> Iterable[tuple[Path, int]]:
        for path, label in (found[index] for index in range(len(found))):
            if not isinstance(path, str | Path) or not isinstance(label, int | numpy.integer):
                raise self._sets.unreadable("its entries are not a file of a picture and the number of a class")
            yield Path(path), int(label)


def _class_names(found: Any) -> tuple[str, ...] | None:
    """The names that torchvision knows, each once; of several words for a class the first."""
    attributes = ("classes", "class_to_idx")
    known = next((getattr(found, name) for name in attributes if hasattr(found, name)), None)
    if known is None:
        return None
    names = [str(name[0]) if isinstance(name, tuple) else str(name) for name in known]
    times = Counter(names)
    return tuple(name if times[name] == 1 else f"{name} ({number})" for number, name in enumerate(names))
