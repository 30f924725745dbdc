"""Causal layers of a Transformer: each position sees itself and those before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from alray.core.errors import SpecError
from alray.models.token_embedding import TOKEN_SPREAD, TokenEmbedding

_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "swiglu": functional.silu,
}
_ROTARY_BASE = 10_000.0


class CausalLayers(nn.Module):
    """Layers of attention and a feed-forward network, each with a residual connection; of tokens, their vectors first.

        x = token_vector + position_vector          where tokens come in; positions if these are learned
        x = x + dropout(attention(norm(x)))         norm_at pre; post: x = norm(x + dropout(attention(x)))
        x = x + dropout(feed_forward(norm(x)))      the same

    With norm_at pre the output is not normalised: each readout begins with a norm. GPT-2 has layer norms, learned
    positions, GELU and biases (Radford et al. 2019); LLaMA has RMSNorm, rotary positions, SwiGLU and no biases (Touvron
    et al. 2023). Matrices begin as normal numbers of deviation 0.02. GPT-2 divides those of residual connections by the
    root of their number, which a component does not know.
    """

    def __init__(
        self,
        context: int,
        width: int,
        *,
        tokens: int | None,
        heads: int,
        feedforward: int,
        dropout: float,
        layers: int = 1,
        norm: Literal["layer", "rms"] = "layer",
        norm_at: Literal["pre", "post"] = "pre",
        positions: Literal["learned", "rotary", "none"] = "learned",
        activation: Literal["relu", "gelu", "swiglu"] = "gelu",
        bias: bool = True,
    ) -> None:
        """Raises SpecError if the width of a head is odd and positions are rotary.

        Args:
            context: the longest sequence.
            tokens: how many there are, where tokens come in; None: vectors come in.
        """
        super().__init__()
        self.embedding = None if tokens is None else TokenEmbedding(tokens, dim=width)
        self.positions: nn.Parameter | None = None
        if tokens is not None and positions == "learned":
            self.positions = nn.Parameter(torch.empty(context, width))
            nn.init.normal_(self.positions, 0.0, TOKEN_SPREAD)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            CausalLayer(
                width,
                attention=CausalAttention(
                    width, heads=heads, dropout=dropout, bias=bias, context=context if positions == "rotary" else None
                ),
                feedforward=FeedForward(width, feedforward, activation=activation, bias=bias),
                norm=norm,
                norm_at=norm_at,
                dropout=dropout,
            )
            for _ in range(layers)
        )

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """
        Args:
            s: [N, T, D], or [N, T] int64 of tokens.
            mask: [N, T] bool. Padding is after the words, which do not see it.
        """
        if self.embedding is not None:
            s = self.embedding(s)
            if self.positions is not None:
                s = s + self.positions[: s.shape[1]]
            s = self.dropout(s)
        for layer in self.layers:
            s = layer(s)
        return s


class CausalLayer(nn.Module):
    """Attention, then a feed-forward network: `[N, T, D] -> [N, T, D]`."""

    def __init__(
        self,
        width: int,
        *,
        attention: nn.Module,
        feedforward: nn.Module,
        norm: Literal["layer", "rms"],
        norm_at: Literal["pre", "post"],
        dropout: float,
    ) -> None:
        super().__init__()
        self.attention_norm, self.feedforward_norm = (
            nn.LayerNorm(width) if norm == "layer" else nn.RMSNorm(width, eps=1e-5) for _ in range(2)
        )
        self.attention = attention
        self.feedforward = feedforward
        self.dropout = nn.Dropout(dropout)
        self.norm_at = norm_at

    def forward(self, s: torch.Tensor) -> torch.Tensor:
        if self.norm_at == "pre":
            s = s + self.dropout(self.attention(self.attention_norm(s)))
            s = s + self.dropout(self.feedforward(self.feedforward_norm(s)))
            return s
        s = self.attention_norm(s + self.dropout(self.attention(s)))
        normed: torch.Tensor = self.feedforward_norm(s + self.dropout(self.feedforward(s)))
        return normed


class CausalAttention(nn.Module):
    """Multi-head attention of each position to itself and those before it: `[N, T, D] -> [N, T, D]`."""

    def __init__(self, width: int, *, heads: int, dropout: float, bias: bool, context: int | None) -> None:
        """
        Args:
            context: the longest sequence, for rotary positions; None: there are none.
        """
        super().__init__()
        self.heads = heads
        self.mix = _linear(width, 3 * width, bias=bias)
        self.output = _linear(width, width, bias=bias)
        self.dropout = nn.Dropout(dropout)  # as a layer, so that alray sees that the component draws random numbers
        self.rotation: torch.Tensor | None
        self.register_buffer(
            "rotation", None if context is None else rotation(context, width // heads), persistent=False
        )

    def forward(self, s: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.mix(s).chunk(3, dim=2)
        )
        if self.rotation is not None:
            turn = self.rotation[:, : s.shape[1]].to(self.mix.weight.dtype)
            query, key = rotated(query, turn), rotated(key, turn)
        mixed = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, dropout_p=self.dropout.p if self.training else 0.0
        )
        result: torch.Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return result


class FeedForward(nn.Module):
    """`output(activation(input(s)))`; with SwiGLU `output(silu(gate(s)) * input(s))` (Shazeer 2020)."""

    def __init__(self, width: int, hidden: int, *, activation: str, bias: bool) -> None:
        super().__init__()
        self.gate = _linear(width, hidden, bias=bias) if activation == "swiglu" else None
        self.input = _linear(width, hidden, bias=bias)
        self.output = _linear(hidden, width, bias=bias)
        self.activation = activation

    def forward(self, s: torch.Tensor) -> torch.Tensor:
        activate = _ACTIVATIONS[self.activation]
        hidden = activate(self.input(s)) if self.gate is None else activate(self.gate(s)) * self.input(s)
        result: torch.Tensor = self.output(hidden)
        return result


def _linear(width: int, output: int, *, bias: bool) -> nn.Linear:
    layer = nn.Linear(width, output, bias=bias)
    nn.init.normal_(layer.weight, 0.0, TOKEN_SPREAD)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def rotation(context: int, width: int) -> torch.Tensor:
    """Cosines and sines of the angle of each position and pair of values, [2, context, width / 2] float64 (Su et al.
    2021). A network rounds them to the type in which it computes.

    Raises SpecError if the width of a head is odd.
    """
    if width % 2:
        raise SpecError(
            f"rotary positions turn pairs of values, and a head has {width}", hint="choose another number of heads"
        )
    speeds = _ROTARY_BASE ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.outer(torch.arange(context, dtype=torch.float64), speeds)
    return torch.stack([angles.cos(), angles.sin()])


def rotated(heads: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """`[N, heads, T, width]` with each pair (value i, value i + width / 2) turned by the angle of its position."""
    first, second = heads.chunk(2, dim=3)
    cos, sin = turn[0], turn[1]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=3)
