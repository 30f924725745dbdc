"""How alike the samples of a mini-batch are, as several methods compare them."""

from __future__ import annotations

import torch
from torch.nn import functional


def similarities(rows: torch.Tensor) -> torch.Tensor:
    """S: `[N, D] -> [N, N]`, the inner products of rows less their mean and divided by their length plus 1e-8."""
    centred = rows - rows.mean(1, keepdim=True)
    lengths: torch.Tensor = torch.linalg.vector_norm(centred, dim=1, keepdim=True)
    scaled: torch.Tensor = centred / (1e-8 + lengths)
    return scaled @ scaled.T


def similarities_of_classes(labels: torch.Tensor, classes: int, dtype: torch.dtype) -> torch.Tensor:
    """S of one-hot rows: class numbers `[N]` to `[N, N]`."""
    return similarities(functional.one_hot(labels, classes).to(dtype))
