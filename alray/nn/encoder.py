"""Encoders f: a block with what alray must know to run it exactly, and what goes along with its output."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from alray.nn.boundary import row_major
from alray.nn.draws import seed_draws

Tensors = dict[str, torch.Tensor]
"""What passes between components, by name:

    s       [N, ...]            samples, or what the encoders so far made of them
    mask    [N, T] bool         of sequences that differ in length: True where one has a place; a prefix of every row
    h, c    [N, layers, width]  a recurrent component's final state, where the next one begins with it
    t       [N, label_dim]      the label chain of Associated Learning
    labels  [N] int64
"""
ALONG = ("s", "mask", "h", "c")
"""What encoders take and give, in the order in which it travels."""


class Encoder(nn.Module):
    """f with what alray must know to run it exactly: whether it draws, and whether it writes on its input."""

    def __init__(self, body: nn.Module, *, index: int, seed: int, draws: bool, writes_input: bool) -> None:
        super().__init__()
        self.body = body
        self.index, self.seed = index, seed
        self.draws, self.writes_input = draws, writes_input

    def run(self, incoming: Tensors, *purpose: str | int) -> Tensors:
        """f of `s`, its random numbers drawn from (seed, component, purpose), with its `mask` and final state.

        The gradient's way back is kept; whoever passes the result on stops it.
        """
        s = incoming["s"]
        if self.draws:
            seed_draws(s.device, self.seed, "draw", self.index, *purpose)
        if self.writes_input:
            s = s.clone()  # the neighbour's loss still needs what it passed on
        return run_block(self.body, {**incoming, "s": s})


def run_block(block: nn.Module, incoming: Tensors) -> Tensors:
    """A block on what comes in: `mask` and `state` are given to it where there are any.

    A mask goes on as long as the output is a sequence `[N, T, ...]`. A block with `hands_on_state` gives
    `(s, (h, c))`, and takes a state that comes in as `state`.
    """
    s, mask = incoming["s"], incoming.get("mask")
    hands_on_state = getattr(block, "hands_on_state", False)
    arguments: dict[str, Any] = {}
    if mask is not None:
        arguments["mask"] = mask
    if hands_on_state and "h" in incoming:
        arguments["state"] = (incoming["h"], incoming["c"])
    outgoing: Tensors = {}
    if hands_on_state:
        outgoing["s"], (outgoing["h"], outgoing["c"]) = block(s, **arguments)
    else:
        outgoing["s"] = block(s, **arguments)
    if mask is not None and isinstance(outgoing["s"], torch.Tensor) and outgoing["s"].ndim > 2:
        outgoing["mask"] = mask
    return outgoing


def in_default_strides(outgoing: Tensors) -> Tensors:
    """The same, row-major, the gradient's way back kept."""
    return {name: row_major(outgoing[name]) for name in ALONG if name in outgoing}


def stopped(outgoing: Tensors) -> Tensors:
    """What the next component may see of an encoder's output: detached, row-major."""
    return {name: row_major(outgoing[name].detach()) for name in ALONG if name in outgoing}
