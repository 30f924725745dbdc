"""`block: lstm`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from alray.config.sections.blocks import BlockSection, NumLayers, sees_later_ones
from alray.config.sections.kind import Finding
from alray.config.sections.paths import Path
from alray.config.sections.section import Width

if TYPE_CHECKING:
    from alray.config.sections.spec import Spec


class Lstm(BlockSection):
    """An LSTM over sequences. It skips padding. The bridge reads its final states."""

    implementation = "block:build"

    block: Literal["lstm"]
    """`lstm`."""
    hidden: Width
    """Width of the state of one direction."""
    bidirectional: bool = True
    """Whether a second direction reads each sequence backwards. The output is then 2 * `hidden` wide. Default: true."""
    layers: NumLayers = 1
    """Number of layers in this component. Default: 1."""
    hand_on_state: bool = False
    """Whether the final state is passed to the next component, which starts with it. Set it for every LSTM of the
    sequence; they need the same `hidden`, `layers` and `bidirectional`. Default: false."""

    def faults(self, spec: Spec, at: Path) -> Iterator[Finding]:
        looks = "bidirectional" if self.bidirectional else "hand_on_state" if self.hand_on_state else None
        if looks is not None and spec.task.label == "tokens":
            yield (*at, looks), sees_later_ones(spec), "set it to false"
