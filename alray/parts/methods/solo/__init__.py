"""`method: solo`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from alray.config.sections.kind import Begin, MiniBatches
from alray.config.sections.method import MethodSection
from alray.config.sections.section import PositiveInt


class Solo(MethodSection):
    """SOLO: a language model whose components all read with a copy of the last readout, which is renewed now and then.

    Nothing else travels backwards, and every depth is a route.
    """

    implementation = "method:SoloMethod"
    abbreviation = "SOLO"
    tasks = ("next_token",)
    trains = "the loss of a copy of the last readout, after its own layers"
    source = "arXiv 2609.35440 (2026)"

    kind: Literal["solo"]
    """`solo`."""
    copy_every: PositiveInt = 50
    """Mini-batches from one copy of the last readout to the next. A copy is used as many mini-batches after it was
    made, so that no stage waits for it. Default: 50."""
    heads: PositiveInt = 4
    """Attention heads of the two causal layers between a component's encoder and the copy. They must divide the width.
    Default: 4."""

    def begins(self, mini_batches: MiniBatches) -> Iterator[Begin]:
        yield "copy_every", self.copy_every, "after which the readout is copied"
