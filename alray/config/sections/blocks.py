"""`model.components`: the blocks that encoders are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from alray.config.sections.kind import Kind, PartSection
from alray.config.sections.own_code import Name, OfPackage, OwnCode

if TYPE_CHECKING:
    from alray.config.sections.spec import Spec

LayerActivation = Literal["relu", "tanh", "sigmoid", "none"]
NumLayers = Annotated[int, Field(ge=1, le=1000)]
Dropout = Annotated[float, Field(ge=0, lt=1)]


class BlockSection(PartSection):
    """The keys of every block."""

    chosen_by = ("block", "repeat")
    normalises_batches: ClassVar[bool] = False
    """Whether the block contains batch normalisation."""

    block: str
    """Name of the block."""
    repeat: Annotated[int, Field(ge=1, le=1000)] = 1
    """Number of equal components that this entry stands for. Default: 1."""

    def side_after(self, side: int) -> int | None:
        """The shorter side of a picture after one component of this block: 0 where it is too small for one; None where
        only building the network tells.

        Args:
            side: before it, pixels.
        """
        return None

    @property
    def fields_of_trained(self) -> dict[str, Any]:
        """The same for a block whose weights are loaded: without files of initial weights."""
        return self.fields


class OwnBlock(OwnCode, BlockSection, extra="allow"):
    """A class of the user. Keys that are not listed here are passed to its constructor."""

    block: Annotated[Name, OfPackage("alray.blocks")]
    """The class, as `python:package.module.Class`, or the name that an installed package gives it."""


def sees_later_ones(spec: Spec) -> str:
    """Says that a block reads the next token from its input, and so learns to copy it."""
    return f"each position would see the tokens after it, and `{spec.task.kind}` asks for the next one"


BLOCKS = Kind("blocks", BlockSection, OwnBlock, key="block")
"""All blocks."""
Block = Annotated[BlockSection, BLOCKS]
