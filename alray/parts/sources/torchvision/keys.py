"""`data: torchvision`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema

from alray.config.sections.data import OwnValidationSection, resized
from alray.config.sections.expected import Expected
from alray.config.sections.kind import Finding
from alray.config.sections.own_code import FreeValue
from alray.config.sections.paths import Path
from alray.config.sections.section import SpecPath, describe, nearest, refusal
from alray.parts.sources.torchvision.known import KNOWN

if TYPE_CHECKING:
    from alray.config.sections.spec import Spec


def _known(value: Any) -> Any:
    if isinstance(value, str) and value not in KNOWN:
        meant = nearest(value, KNOWN)
        hint = f"did you mean `{meant}`?" if meant else "torchvision's other sets are not for classification"
        raise refusal(f"expected one of {', '.join(KNOWN)}, got {describe(value)}", hint)
    return value


class Torchvision(OwnValidationSection):
    """One of torchvision's data sets, read from disk or downloaded."""

    implementation = "source:opened"

    source: Literal["torchvision"]
    """`torchvision`."""
    dataset: Annotated[str, BeforeValidator(_known), WithJsonSchema({"type": "string", "enum": list(KNOWN)})]
    """Name of the data set, as of its class in `torchvision.datasets`."""
    root: SpecPath
    """Folder of the data set's files. A download writes them there."""
    download: bool = False
    """Whether the data set is downloaded if it is not in `root`. Default: false."""
    options: dict[str, FreeValue] = Field(default_factory=dict)
    """Further arguments of the class in torchvision, such as {split: letters} for EMNIST or {size: 160px} for
    Imagenette. Default: {}."""

    @property
    def of_kind(self) -> Expected:
        known = KNOWN[self.dataset]
        return resized(replace(known, classes=None, samples=None) if self.options else known, self.size)

    @property
    def own_validation(self) -> bool:
        return KNOWN[self.dataset].validation > 0

    @classmethod
    def _brings_validation(cls, values: dict[str, Any]) -> bool:
        known = KNOWN.get(str(values.get("dataset")))
        return known is not None and known.validation > 0

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
            message = f"the pictures of {self.dataset} differ in size"
            yield (*at, "image_size"), message, "set data.image_size, such as 224, or [height, width]"
