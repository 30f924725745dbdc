"""`model`: the chain of components."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from alray.spec.blocks import Block
from alray.spec.section import Section


class Model(Section):
    """The network, as a chain of encoders."""

    components: Annotated[tuple[Block, ...], Field(strict=False, min_length=1)]
    """The encoders f in the order data flows; one entry is one component, or `repeat` of them."""

    def expanded(self) -> list[Block]:
        """One entry per component: what `repeat` stands for written out, each with `repeat` 1."""
        return [entry.model_copy(update={"repeat": 1}) for entry in self.components for _ in range(entry.repeat)]

    @property
    def num_components(self) -> int:
        """Number of components, `repeat` counted."""
        return sum(entry.repeat for entry in self.components)
