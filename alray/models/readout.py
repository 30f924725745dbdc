"""From an encoder's output to a vector per sample, and layers after it: bridges, projections and classifiers.

Feature maps are averaged over windows. Sequences are averaged over their positions, or read at an LSTM's final states.
Every backward pass here is deterministic on every device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from alray.config.sections.head import HeadOrAuto
from alray.core.errors import SpecError
from alray.models.shape import Shape

_ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "relu": nn.ReLU}


def with_activation(layer: nn.Module, activation: str) -> nn.Sequential:
    """The layer, followed by the activation of this name; by nothing if the name is `none`."""
    if activation == "none":
        return nn.Sequential(layer)
    return nn.Sequential(layer, _ACTIVATIONS[activation]())


class WindowPool(nn.Module):
    """`[N, C, H, W] -> [N, C, min(H, size), min(W, size)]` by averages over windows that do not overlap.

    A window is `H // size` high; the last one takes the remaining rows as well. `AdaptiveAvgPool2d` is not used: its
    windows overlap, and its backward pass on CUDA is not deterministic.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        height, width = maps.shape[-2:]
        rows, columns = min(height, self.size), min(width, self.size)
        if height % rows == 0 and width % columns == 0:
            window = (height // rows, width // columns)
            if window == (1, 1):
                return maps
            averaged: torch.Tensor = functional.avg_pool2d(maps, window)
            return averaged
        return _average(_average(maps, 2, rows), 3, columns)


def _average(maps: torch.Tensor, axis: int, windows: int) -> torch.Tensor:
    length = maps.shape[axis]
    window = length // windows
    if length % windows == 0:
        even: torch.Tensor = maps.unflatten(axis, (windows, window)).mean(axis + 1)
        return even
    whole = maps.narrow(axis, 0, window * (windows - 1)).unflatten(axis, (windows - 1, window)).mean(axis + 1)
    rest = maps.narrow(axis, window * (windows - 1), length - window * (windows - 1)).mean(axis, keepdim=True)
    return torch.cat([whole, rest], axis)


Pooling = Literal["mean", "final_states", "last_state", "channels_last", "none"]
"""How a sequence or a map becomes a vector. A block's module chooses one by the attribute `alray_pooling`; the default
is "mean". channels_last: the mean, and maps are [N, H, W, C] in place of [N, C, H, W]. none: each position of a
sequence keeps its vector, where the task has a label for each."""


class Features(nn.Module):
    """A vector per sample from any encoder's output: `[N, *input] -> [N, width]`; `[N, T, width]` without pooling.

    Maps are averaged over windows and flattened, sequences are pooled over their positions, anything else is flattened.
    """

    def __init__(self, input: Shape, pool: int | None, pooling: Pooling = "mean") -> None:
        """
        Args:
            pool: windows of a map in each direction, at most; None does not average.
            pooling: of sequences.

        Raises:
            SpecError: if there are no positions to read one by one.
        """
        super().__init__()
        if pooling == "none" and len(input) != 2:
            raise SpecError(
                f"the task has a label for each position, and an output of shape {tuple(input)} has no positions",
                key="model.components",
                hint="use blocks that give a vector for each position, such as transformer with causal: true",
            )
        maps, self.sequences = len(input) == 3, len(input) == 2
        self.moves_channels = maps and pooling == "channels_last"
        if self.moves_channels:
            input = Shape((input[2], *input[:2]), input.dtype)
        self.pool = WindowPool(pool) if maps and pool is not None else None
        self.pooling = pooling
        self.width = input.elements
        if maps and pool is not None:
            self.width = input[0] * min(input[1], pool) * min(input[2], pool)
        elif self.sequences:
            self.width = input[1] // 2 if pooling == "final_states" else input[1]

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        if self.sequences:
            return _POOLED[self.pooling](s, mask)
        if self.moves_channels:
            s = s.movedim(3, 1)
        if self.pool is not None:
            s = self.pool(s)
        return s.flatten(1)


def masked_mean(s: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """`[N, T, D] -> [N, D]`: the mean over the positions where `mask` `[N, T]` is True; over all without a mask."""
    if mask is None:
        return s.mean(1)
    words = s.masked_fill(~mask.unsqueeze(2), 0.0)
    return words.sum(1) / mask.sum(1, keepdim=True)


def final_states(s: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """`[N, T, 2H] -> [N, H]`: the final states of both directions of a bidirectional LSTM, added.

    The first half of the width is the forward direction, which ends at a row's last position; the second half is the
    backward direction, which ends at the first position.
    """
    half = s.shape[2] // 2
    return last_state(s[:, :, :half], mask) + s[:, 0, half:]


def last_state(s: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """`[N, T, D] -> [N, D]`: each row at its last position, where a one-directional LSTM has read the whole row."""
    if mask is None:
        return s[:, -1]
    rows = torch.arange(s.shape[0], device=s.device)  # not len(s), which an exported graph would keep as a constant
    return s[rows, mask.sum(1) - 1]


_POOLED: dict[Pooling, Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]] = {
    "mean": masked_mean,
    "final_states": final_states,
    "last_state": last_state,
    "channels_last": masked_mean,
    "none": lambda s, mask: s,
}


class Readout(nn.Sequential):
    """A vector per sample, then layers: `[N, *input] -> [N, width]`."""

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """
        Args:
            mask: [N, T] bool, where `s` is a sequence [N, T, D] whose rows differ in length.
        """
        features, *layers = self
        s = features(s, mask)
        for layer in layers:
            s = layer(s)
        return s


def classifier(
    input: Shape, *, classes: int, pool: int | None, hidden: int | None, activation: str, pooling: Pooling = "mean"
) -> Readout:
    """A classifier on an encoder's output: `[N, *input] -> [N, classes]`, scores before the softmax.

    Of each position by itself, `[N, T, D] -> [N, T, classes]`, it is that of GPT-2: a layer norm, and a last layer
    without a bias. The residual stream of Transformers is not normalised before it.

    Args:
        pool: see `Features`.
        hidden: width of a hidden layer with this activation, None for no hidden layer.
    """
    features = Features(input, pool, pooling)
    layers: list[nn.Module] = [features]
    width = features.width
    by_position = pooling == "none"
    if by_position:
        layers.append(nn.LayerNorm(width))
    if hidden is not None:
        layers.append(with_activation(nn.Linear(width, hidden), activation))
        width = hidden
    layers.append(nn.Linear(width, classes, bias=not by_position))
    return Readout(*layers)


def head_of(head: HeadOrAuto, input: Shape, *, classes: int, pooling: Pooling) -> Readout:
    """The classifier that a spec's key `head` asks for; `auto` is one linear layer on maps of at most 4 x 4.

    Args:
        head: a section `alray.config.sections.head.Head`, or "auto".

    Raises:
        SpecError: if it reads the last word of no text.
    """
    if head == "auto":
        return classifier(input, classes=classes, pool=4, hidden=None, activation="relu", pooling=pooling)
    if head.sequence == "last_word":
        if len(input) != 2 or pooling == "none":
            raise SpecError(
                f"there is no last word in an output of shape {tuple(input)}",
                key="method.head.sequence",
                hint="leave it out, or use it for text",
            )
        pooling = "last_state"
    return classifier(
        input, classes=classes, pool=head.pool, hidden=head.hidden, activation=head.activation, pooling=pooling
    )
