"""A vector for each token, and the number of padding."""

from __future__ import annotations

import torch
from torch import nn

PADDING = 0
"""The word number of padding."""
TOKEN_SPREAD = 0.02
"""Standard deviation of the initial vectors of tokens and positions, and of the matrices of `causal` Transformers: that
of GPT-2."""


class TokenEmbedding(nn.Module):
    """A trained vector for each token, without padding: `[N, T]` int64 `-> [N, T, dim]`."""

    def __init__(self, tokens: int, *, dim: int) -> None:
        super().__init__()
        self.table = nn.Embedding(tokens, dim)
        nn.init.normal_(self.table.weight, 0.0, TOKEN_SPREAD)

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """The mask is not needed."""
        result: torch.Tensor = self.table(s)
        return result
