"""Places that count: a mask `[N, T]` is True where a row has a place, and that is a prefix of every row."""

from __future__ import annotations

import torch


def zero_padding(s: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """`[N, T, D]` with zeros at the places that do not count; s itself where every place does (no mask).

    A block that adds a bias makes something of nothing at padded places; this takes it out again, so that no later
    block can see how long a row was padded.
    """
    return s if mask is None else s.masked_fill(~mask.unsqueeze(2), 0.0)
