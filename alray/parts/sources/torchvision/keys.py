"""`data: torchvision`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema

from alray.config.sections.data import OwnValidationSection, resized
from alray.config.sections.expected import Expected
from alray.config.sections.kind import Finding
from alray.config.sections.own_code import FreeValue
from alray.config.sections.paths import Path
from alray.config.sections.section import SpecPath, describe, nearest, refusal
from alray.parts.sources.torchvision.known import KNOWN, known_of

if TYPE_CHECKING:
    from alray.config.sections.spec import Spec


def _is_there(value: Any) -> Any:
    """A name that alray lists, or another one that torchvision has."""
    if isinstance(value, str) and value not in KNOWN and value not in (others := _names_of_torchvision()):
        meant = nearest(value, [*KNOWN, *others])
        hint = f"did you mean `{meant}`?" if meant else "give the name of a class in torchvision.datasets"
        raise refusal(f"expected one of {', '.join(KNOWN)}, got {describe(value)}", hint)
    return value


def _names_of_torchvision() -> set[str]:
    """The classes that `torchvision.datasets` lists. They are read from its file: to import it takes seconds."""
    package = find_spec("torchvision")
    assert package is not None and package.submodule_search_locations is not None, "alray requires torchvision"
    file = FilePath(package.submodule_search_locations[0]) / "datasets" / "__init__.py"
    listed = re.search(r"^__all__ = \((.*?)^\)", file.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return set(re.findall(r'"([A-Z]\w+)"', listed[1])) if listed else set()


class Torchvision(OwnValidationSection):
    """One of torchvision's data sets, read from disk or downloaded."""

    implementation = "source:opened"

    source: Literal["torchvision"]
    """`torchvision`."""
    dataset: Annotated[
        str, BeforeValidator(_is_there), WithJsonSchema({"anyOf": [{"enum": list(KNOWN)}, {"type": "string"}]})
    ]
    """Name of the data set, as of its class in `torchvision.datasets`: one of these, or another one whose constructor
    takes `root` and `loader`, and `split`, `train` or neither for its parts."""
    root: SpecPath
    """Folder of the data set's files. A download writes them there."""
    download: bool = False
    """Whether the data set is downloaded if it is not in `root`. Default: false."""
    options: dict[str, FreeValue] = Field(default_factory=dict)
    """Further arguments of the class in torchvision, such as {split: letters} for EMNIST or {size: 160px} for
    Imagenette. Default: {}."""

    @property
    def of_kind(self) -> Expected:
        sizes = known_of(self.dataset).sizes
        return resized(replace(sizes, classes=None, samples=None) if self.options else sizes, self.size)

    @property
    def own_validation(self) -> bool:
        return known_of(self.dataset).sizes.validation > 0

    @classmethod
    def brings_own(cls, values: dict[str, Any]) -> bool:
        return known_of(str(values.get("dataset"))).sizes.validation > 0

    @property
    def from_files(self) -> Self:
        return self.model_copy(update={"download": False})

    @property
    def without_test(self) -> str | None:
        return None if self.of_kind.test else "take the metric of the validation set"

    @property
    def downloads_to(self) -> FilePath:
        return self.root

    def faults(self, spec: Spec, at: Path) -> Iterator[Finding]:
        if self.of_kind.shape is None:
            fault = f"the pictures of {self.dataset} differ in size, or alray does not know it"
            yield (*at, "image_size"), fault, "set data.image_size, such as 224, or [height, width]"
