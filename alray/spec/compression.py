"""`replicas.compression`: how gradients are made smaller before they are sent."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from alray.spec.choice import Choice
from alray.spec.section import NonNegativeInt, PositiveInt, Section


class CompressionSection(Section):
    """What every compression has."""

    kind: str
    """Which compression."""


class NoCompression(CompressionSection):
    """Gradients travel as they are."""

    kind: Literal["none"] = "none"
    """`none`."""


class Fp16(CompressionSection):
    """Gradients travel, and are added up, as 16-bit floats: half the bytes, largest value 65,504."""

    kind: Literal["fp16"]
    """`fp16`."""


class Bf16(CompressionSection):
    """Gradients travel, and are added up, as bfloat16: half the bytes, the range of float32, 8 bits of precision."""

    kind: Literal["bf16"]
    """`bf16`."""


class PowerSgd(CompressionSection):
    """PowerSGD (Vogels et al. 2019, arXiv 1905.13727): matrices travel as two thin factors; error feedback, warm start.

    Parameters of one dimension travel as they are.
    """

    kind: Literal["powersgd"]
    """`powersgd`."""
    rank: PositiveInt = 2
    """Columns of the factors. More columns send more bytes and lose less."""
    start_iteration: NonNegativeInt = 0
    """Updates at the beginning of a run whose gradients travel whole."""


class TopK(CompressionSection):
    """The entries of largest magnitude travel; what stays behind is added to the next gradient (error feedback)."""

    kind: Literal["top_k"]
    """`top_k`."""
    fraction: Annotated[float, Field(gt=0, le=1)] = 0.01
    """Share of a component's gradient that travels, in 0..1."""


def _named(value: Any) -> Any:
    """A bare name is that kind with its defaults."""
    return {"kind": value} if isinstance(value, str) else value


CompressionSections = Annotated[
    Annotated[NoCompression, Tag("none")]
    | Annotated[Fp16, Tag("fp16")]
    | Annotated[Bf16, Tag("bf16")]
    | Annotated[PowerSgd, Tag("powersgd")]
    | Annotated[TopK, Tag("top_k")],
    Discriminator(Choice("kind", default="none")),
]
CompressionName = Literal["none", "fp16", "bf16", "powersgd", "top_k"]
Compression = Annotated[
    CompressionSections, BeforeValidator(_named, json_schema_input_type=CompressionSections | CompressionName)
]
"""A section with its `kind`, or the bare name of one."""
