"""Several blocks as the encoder of one component: gradients go through all of them, and stop at its ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from alray.models.encoder import Encoder, EncoderFacts, Tensors, in_default_strides, row_major, run_block


class EncoderGroup(Encoder):
    """The encoders of a group, one after the other, as a chain of backpropagation runs them: with the random numbers
    that each would draw by itself, and in default strides in both directions."""

    body: Blocks

    def __init__(self, encoders: Sequence[Encoder], *, index: int, facts: EncoderFacts) -> None:
        """
        Args:
            encoders: of the blocks, each with the block's number in `index`.
            index: of the component.
        """
        super().__init__(Blocks(encoder.body for encoder in encoders), index=index, seed=encoders[0].seed, facts=facts)
        self.key = encoders[0].key
        self._encoders = tuple(encoders)  # a tuple: their modules are those of `body`, and have no second name

    @property
    def bodies(self) -> list[nn.Module]:
        return list(self.body)

    def run(self, incoming: Tensors, *purpose: str | int) -> Tensors:
        for encoder in self._encoders:
            encoder.replica = self.replica
            incoming = in_default_strides(encoder.run(incoming, *purpose))
            for value in incoming.values():
                if value.requires_grad:
                    value.register_hook(row_major)
        return incoming


class Blocks(nn.ModuleList):
    """The blocks of a group, called as one block is (`run_block`)."""

    @property
    def hands_on_state(self) -> bool:
        """Whether the last block gives a state."""
        return bool(getattr(self[-1], "hands_on_state", False))

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None, state: Any = None) -> Any:
        tensors: Tensors = {"s": s}
        if mask is not None:
            tensors["mask"] = mask
        if state is not None:
            tensors["h"], tensors["c"] = state
        for block in self:
            tensors = in_default_strides(run_block(block, tensors))
        return (tensors["s"], (tensors["h"], tensors["c"])) if self.hands_on_state else tensors["s"]


def facts_of_group(blocks: Sequence[EncoderFacts]) -> EncoderFacts:
    """The facts about the encoder of a group; those of its blocks are given in order."""
    first, last = blocks[0], blocks[-1]
    if len(blocks) == 1:
        return first
    return replace(
        first,
        name=", ".join(block.name for block in blocks),
        own=any(block.own for block in blocks),
        output=last.output,
        draws=any(block.draws for block in blocks),
        normalises_batches=any(block.normalises_batches for block in blocks),
        pooling=last.pooling,
        gives_along=last.gives_along,
    )
