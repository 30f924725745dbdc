"""`model.components[*]`: the entries of the chain of encoders. One class per built-in block."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag

from alray.spec.choice import OPEN_TAG, Choice
from alray.spec.own_code import OwnCode, Reference
from alray.spec.section import Counts, Section


class BlockSection(Section):
    """What every entry has."""

    block: str
    """Which block."""
    repeat: Annotated[int, Field(ge=1, le=1000)] = 1
    """How many components alike this entry stands for."""

    @property
    def fields(self) -> dict[str, Any]:
        """What the block is built with, by name: every key but `block` and `repeat`."""
        return {key: getattr(self, key) for key in type(self).model_fields if key not in ("block", "repeat")}


class Vgg(BlockSection):
    """3x3 convolutions (padding 1, no bias), each with batch normalisation and ReLU, and perhaps a pool."""

    block: Literal["vgg"]
    """`vgg`."""
    channels: Counts
    """Output channels of each convolution, in order."""
    pool: bool = False
    """Whether a 2x2 max pool ends the block, which halves height and width."""


class OwnBlock(OwnCode, BlockSection):
    """A block of one's own; the keys that are not listed here go to its constructor."""

    model_config = ConfigDict(extra="allow")

    block: Reference
    """The class, as `python:package.module.Class`."""


Block = Annotated[
    Annotated[Vgg, Tag("vgg")] | Annotated[OwnBlock, Tag(OPEN_TAG)],
    Discriminator(Choice("block")),
]
