"""The transformer block: one pre-norm encoder layer, or the causal layers of a language model."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from alray.core.errors import SpecError
from alray.models.causal import CausalLayers
from alray.models.inputs import require_sequence, zero_padding
from alray.models.shape import Shape


def build(
    input: Shape,
    *,
    heads: int,
    feedforward: int,
    dim: int | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    **causal_fields: Any,
) -> nn.Module:
    """`[N, T, D] -> [N, T, D]`. A causal block also takes tokens `[N, T]`, whose vectors have `dim` values.

    Raises SpecError if `dim` is given and is not D, if it is missing for tokens, or if `heads` does not divide D.
    """
    embeds = causal and input.tokens is not None
    if embeds and dim is None:
        raise SpecError("block `transformer` gets tokens and needs the width of their vectors", hint="add dim")
    width = dim if embeds and dim is not None else require_sequence("transformer", input)
    if dim is not None and dim != width:
        raise SpecError(
            f"block `transformer` keeps the width of its input, which is {width}, not {dim}",
            hint=f"set dim to {width}, or leave it out",
        )
    if width % heads != 0:
        raise SpecError(
            f"block `transformer` divides a width of {width} among its heads, and {heads} is not a divisor",
            hint="choose another number of heads",
        )
    if causal:
        tokens = input.tokens if embeds else None
        return CausalLayers(
            input[0], width, tokens=tokens, heads=heads, feedforward=feedforward, dropout=dropout, **causal_fields
        )
    return EncoderLayer(width, heads=heads, feedforward=feedforward, dropout=dropout)


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network, each after a layer norm and with a residual connection; a last norm.

        s = s + dropout(attention(norm(s)))
        s = s + dropout(feed_forward(norm(s)))
        s = norm(s)

    Xiong et al. 2020, figure 1b. The thesis adds the last norm, dropout after the ReLU and on the attention weights,
    and Xavier-uniform initial matrices: its component is a whole encoder of one layer. It divides by the sample's
    standard deviation plus 1e-6 where this uses `nn.LayerNorm`. `nn.TransformerEncoderLayer` is not used: in evaluation
    it runs other code than in training, with other shapes and other bits.
    """

    def __init__(self, width: int, *, heads: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads=heads, dropout=dropout)
        self.feedforward_norm = nn.LayerNorm(width)
        self.feedforward = nn.Sequential(
            nn.Linear(width, feedforward),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(feedforward, width),
        )
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.xavier_uniform_(parameter)

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """
        Args:
            s: [N, T, D].
            mask: [N, T] bool, True where there is a word, None for all. Padded positions give 0.
        """
        s = s + self.dropout(self.attention(self.attention_norm(s), mask))
        s = s + self.dropout(self.feedforward(self.feedforward_norm(s)))
        return zero_padding(self.norm(s), mask)


class SelfAttention(nn.Module):
    """Multi-head attention of each position to all positions but padding (Vaswani et al. 2017, section 3.2.2).

    It uses `scaled_dot_product_attention`: the same call in training and evaluation, with a deterministic backward pass
    on every device when deterministic algorithms are on.
    """

    def __init__(self, width: int, *, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.dropout = nn.Dropout(dropout)  # as a layer, so that alray sees that the component draws random numbers

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """
        Args:
            s: [N, T, D].
            mask: [N, T]. The values at padded positions are arbitrary.
        """
        query, key, value = (self._split(layer(s)) for layer in (self.query, self.key, self.value))
        mixed = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=None if mask is None else mask[:, None, None, :],
            dropout_p=self.dropout.p if self.training else 0.0,
        )
        result: torch.Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return result

    def _split(self, s: torch.Tensor) -> torch.Tensor:
        """`[N, T, D] -> [N, heads, T, D / heads]`."""
        shared: torch.Tensor = s.unflatten(2, (self.heads, -1))
        return shared.transpose(1, 2)
