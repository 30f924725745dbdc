"""`data: torchvision`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field

from alray.config.sections.data import DataSection, resized
from alray.config.sections.expected import Expected
from alray.config.sections.kind import Finding
from alray.config.sections.own_code import FreeValue
from alray.config.sections.paths import Path
from alray.config.sections.section import SpecPath, describe, did_you_mean, nearest, refusal

if TYPE_CHECKING:
    from alray.config.sections.spec import Spec


_MNIST = Expected((1, 28, 28), 10, 60_000, 10_000)
SIZES = {
    "CIFAR10": Expected((3, 32, 32), 10, 50_000, 10_000),
    "CIFAR100": Expected((3, 32, 32), 100, 50_000, 10_000),
    "MNIST": _MNIST,
    "FashionMNIST": _MNIST,
    "EMNIST": Expected((1, 28, 28), 47, 112_800, 18_800),
}
"""The published sizes of some sets, so that a plan needs no download."""


def _is_there(value: Any) -> Any:
    """The name of a class that torchvision has."""
    if isinstance(value, str) and value not in SIZES and value not in (names := _names_of_torchvision()):
        hint = did_you_mean(nearest(value, names), "give the name of a class, such as CIFAR10")
        raise refusal(f"expected a class of torchvision.datasets, got {describe(value)}", hint)
    return value


def _names_of_torchvision() -> set[str]:
    """The classes that `torchvision.datasets` lists. They are read from its file: to import it takes seconds."""
    package = find_spec("torchvision")
    assert package is not None and package.submodule_search_locations is not None, "alray requires torchvision"
    file = FilePath(package.submodule_search_locations[0]) / "datasets" / "__init__.py"
    listed = re.search(r"^__all__ = \((.*?)^\)", file.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return set(re.findall(r'"([A-Z]\w+)"', listed[1])) if listed else set()


class Torchvision(DataSection):
    """One of torchvision's data sets, read from disk or downloaded."""

    implementation = "source:opened"

    source: Literal["torchvision"]
    """`torchvision`."""
    dataset: Annotated[str, BeforeValidator(_is_there)]
    """Name of the data set, as of its class in `torchvision.datasets`, such as CIFAR10 or Food101."""
    root: SpecPath
    """Folder of the data set's files. A download writes them there."""
    download: bool = False
    """Whether the data set is downloaded if it is not in `root`. Default: false."""
    options: dict[str, FreeValue] = Field(default_factory=dict)
    """Further arguments of the class in torchvision, such as {split: letters} for EMNIST or {size: 160px} for
    Imagenette. Default: {}."""

    @property
    def of_kind(self) -> Expected:
        sizes = SIZES.get(self.dataset, Expected())
        return resized(replace(sizes, classes=None, samples=None) if self.options else sizes, self.size)

    @property
    def from_files(self) -> Self:
        return self.model_copy(update={"download": False})

    @property
    def downloads_to(self) -> FilePath:
        return self.root

    def faults(self, spec: Spec, at: Path) -> Iterator[Finding]:
        if self.of_kind.shape is None:
            fault = f"the pictures of {self.dataset} may differ in size"
            yield (*at, "image_size"), fault, "set data.image_size, such as 224, or [height, width]"
