"""Encoders f: a block that gives the same bits wherever it runs.

Two things would make the bits depend on how a network is cut into stages: where random numbers come from, and the
strides of what crosses the boundary between two components. Both are settled here, and so is who is named when a
user's block raises an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.graph import register_multi_grad_hook

from alray.config.user_code import named, own_place
from alray.core.compat import DropoutNd
from alray.core.errors import Problem, UserCodeError
from alray.core.randomness.generators import seed_all, seed_torch
from alray.models.readout import Pooling
from alray.models.shape import Shape

Tensors = dict[str, torch.Tensor]
"""The tensors that pass between components, by name:

    s       [N, ...]            samples, or the output of the encoders so far
    mask    [N, T] bool         of sequences of different lengths: True where a row has a word; a prefix of every row
    h, c    [N, layers, width]  final state of a recurrent component, where the next one starts from it
    x1, x2  [N, ...]            further tensors of an imported model that are needed after a cut, and `reads`, [N, R]
                                int64, the numbers that it has read of tensors
    labels  [N] int64           class numbers; [N, T] int64 tokens; [N, outputs] float32 in further tasks
    t       [N, label_dim]      the label chain of Associated Learning; [N, T, label_dim] of tokens

A method may send further tensors with the labels (`Method.labels_out`).
"""
ALONG = ("s", "mask", "h", "c")
"""The names of an encoder's inputs and outputs, in the order in which they travel, before those of imported models."""


class PartEnds(NamedTuple):
    """A part of a model from one cut point to another, by their names. None: from its input, to its result."""

    after: str | None
    until: str | None


@dataclass(frozen=True)
class EncoderFacts:
    """The facts about one encoder that are known before it is built with weights. Shapes are those of one sample."""

    name: str  # of its block
    own: bool  # whether the block is a user's code
    input: Shape
    output: Shape
    draws: bool  # whether it draws random numbers in training; a user's code always may
    writes_input: bool  # whether its forward pass changes its input in place
    normalises_batches: bool  # by statistics over the samples of a mini-batch
    pooling: Pooling
    takes_along: dict[str, Shape]  # `mask`, `h` and `c`, where they come in with `s`
    gives_along: dict[str, Shape]  # the same, where they are sent on with `s`
    ends: PartEnds | None = None  # of a part of a model: the cut points where it begins and ends

    @property
    def gives(self) -> dict[str, Shape]:
        """Everything the encoder passes on, by name, `s` first."""
        return {"s": self.output} | self.gives_along

    def key(self, index: int) -> str:
        """The key of the spec that describes this encoder, the one of component `index`."""
        return f"model.components[{index}]" if self.ends is None else "model.from"

    def as_json(self) -> dict[str, Any]:
        """The facts as JSON, without the words of texts."""
        return {
            **vars(self),
            "input": self.input.as_json(),
            "output": self.output.as_json(),
            "takes_along": {name: shape.as_json() for name, shape in self.takes_along.items()},
            "gives_along": {name: shape.as_json() for name, shape in self.gives_along.items()},
        }

    @classmethod
    def from_json(cls, value: dict[str, Any], sample: Shape | None) -> EncoderFacts:
        """The facts of which `as_json` gave `value`.

        Args:
            sample: of the first component, one sample.
        """
        along = {
            key: {name: Shape.from_json(shape) for name, shape in value[key].items()}
            for key in ("takes_along", "gives_along")
        }
        shapes = {"input": Shape.from_json(value["input"], sample), "output": Shape.from_json(value["output"])}
        ends = None if value["ends"] is None else PartEnds(*value["ends"])
        return cls(**{**value, **shapes, **along, "ends": ends})


class Encoder(nn.Module):
    """A block, with what must be known to run it exactly."""

    def __init__(self, body: nn.Module, *, index: int, seed: int, facts: EncoderFacts) -> None:
        """
        Args:
            index: of its component.
            seed: of the run.
        """
        super().__init__()
        self.body = body
        self.index = index
        self.seed = seed
        self.replica = 0
        self.own = facts.own
        self.draws = facts.draws
        self.writes_input = facts.writes_input
        self.title = f"block `{facts.name}`"
        self.key = facts.key(index)
        self._input = facts.input
        self._gives = facts.gives
        self.in_backward = False
        """Whether the backward pass of a user's block has started and not ended."""

    @property
    def bodies(self) -> list[nn.Module]:
        """The block, or all blocks of a group."""
        return [self.body]

    def run(self, incoming: Tensors, *purpose: str | int) -> Tensors:
        """Run the block on `s`, `mask` and the final state in `incoming`. Return `s` and the tensors sent with it.

        Random numbers are drawn from (seed, component, purpose, replica), those of replica 0 as if it were alone. The
        result still carries its gradient graph: whoever passes it on must stop it.
        """
        s = incoming["s"]
        purpose = self.purpose(*purpose)
        if self.own:
            return self._run_own(incoming, purpose)
        if self.draws:
            seed_torch(s.device, self.seed, "draw", self.index, *purpose)
        if self.writes_input:
            s = s.clone()  # the component below still needs this tensor for its loss
        return run_block(self.body, {**incoming, "s": s})

    def purpose(self, *purpose: str | int) -> tuple[str | int, ...]:
        """Return the key from which random numbers are drawn, in addition to the seed and the component."""
        return (*purpose, "replica", self.replica) if self.replica else purpose

    def _run_own(self, incoming: Tensors, purpose: tuple[str | int, ...]) -> Tensors:
        """`run` of a user's block, which may draw from any generator, in its backward pass too, and raise any error.

        Aliases on both sides have hooks that come before and after all those of the block.
        """
        s = incoming["s"]
        device = s.device
        if s.requires_grad:
            s = alias(s)
            s.register_hook(self._end_backward)
        s = s.clone() if self.writes_input else alias(s)
        seed_all(device, self.seed, "draw", self.index, *purpose)
        with named(self.title, f"the forward pass of component {self.index}", key=self.key):
            outgoing = run_block(self.body, {**incoming, "s": s})
        self._require_as_found(s, outgoing)

        def begin_backward(_: torch.Tensor) -> None:
            self.in_backward = True
            seed_all(device, self.seed, "draw", self.index, *purpose, "backward")

        ends = {name: alias(end) for name, end in outgoing.items() if getattr(end, "requires_grad", False)}
        if ends:
            register_multi_grad_hook(tuple(ends.values()), begin_backward, mode="any")
        return {**outgoing, **ends}

    def _end_backward(self, _: torch.Tensor) -> None:
        self.in_backward = False

    def _require_as_found(self, s: torch.Tensor, outgoing: Tensors) -> None:
        """Raise UserCodeError where the block gives something else than it did on the meta device: a component above,
        or a loss, would raise an error that does not name this block.

        Rows of text may be shorter than there, and what is given with them.
        """
        whole = tuple(s.shape[1:]) == self._input
        for name, value in outgoing.items():
            shape = self._gives[name]
            if isinstance(value, torch.Tensor):
                fits = value.ndim > 0 and len(value) == len(s) and (tuple(value.shape[1:]) == shape or not whole)
                if fits and value.dtype == shape.dtype:
                    continue
                got = described(value.shape, value.dtype)
            else:
                got = type(value).__name__
            wanted = described((len(s), *shape), shape.dtype)
            if not whole:
                wanted = f"{len(s)} rows of {str(shape.dtype).removeprefix('torch.')}"
            message = f"{self.title} gave `{name}` of {got} in the forward pass of component {self.index}, not {wanted}"
            hint = "give one row for each sample, of the shape and type that `forward` gives on torch's meta device"
            file, line = own_place(getattr(type(self.body), "forward", None)) or (None, None)
            raise UserCodeError.of((Problem(message, hint, file, line, self.key),))


def alias(tensor: torch.Tensor) -> torch.Tensor:
    """The same values and strides, with a separate node in the gradient graph."""
    same: torch.Tensor = torch.ops.aten.alias(tensor)
    return same


def run_block(block: nn.Module, incoming: Tensors) -> Tensors:
    """Call a block on what comes in; it gets `mask` and `state` only where there are any.

    A mask is sent on while the output is a sequence `[N, T, ...]`. A block with the attribute `hands_on_state` takes
    a state as `state`, and gives `(s, (h, c))`. A part of an imported model gets and gives all by name.
    """
    if getattr(block, "alray_takes_message", False):
        return _in_order(block(incoming))
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


def described(sizes: tuple[int, ...], dtype: torch.dtype) -> str:
    """A tensor in messages, such as `[8, 16] float32`."""
    return f"{list(sizes)} {str(dtype).removeprefix('torch.')}"


# --- What crosses the boundary between components ---


def default_strides(shape: torch.Size) -> tuple[int, ...]:
    """Strides of a freshly allocated row-major tensor of this shape."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


def row_major(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in default strides; the tensor itself if it has them already.

    A tensor that travels over an edge arrives row-major. In other strides the same values would take another
    convolution kernel and another dropout mask, so the bits would depend on the partition. `contiguous()` is not
    enough: a channels-last tensor of 1 x 1 maps counts as contiguous and keeps its strides.
    """
    if tensor.stride() == default_strides(tensor.shape):
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def pass_on(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as the next component gets it: detached and row-major."""
    return row_major(tensor.detach())


def in_default_strides(outgoing: Tensors) -> Tensors:
    """An encoder's output, row-major, with its gradient graph."""
    return {name: row_major(value) for name, value in _in_order(outgoing).items()}


def stopped(outgoing: Tensors) -> Tensors:
    """An encoder's output as the next component gets it: detached and row-major."""
    return {name: pass_on(value) for name, value in _in_order(outgoing).items()}


def _in_order(outgoing: Tensors) -> Tensors:
    return {name: outgoing[name] for name in (*ALONG, *outgoing) if name in outgoing}


# --- Random numbers ---

_DRAWING = (
    DropoutNd,  # the parent class of every dropout layer
    nn.RReLU,
    nn.FractionalMaxPool2d,
    nn.FractionalMaxPool3d,
)


def module_draws(module: nn.Module) -> bool:
    """Whether a module of torch's layers draws random numbers in training."""
    for child in module.modules():
        if isinstance(child, _DRAWING):
            return True
        if getattr(child, "dropout", 0.0) and isinstance(child, nn.RNNBase | nn.MultiheadAttention):
            return True
    return False


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
