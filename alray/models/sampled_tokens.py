"""A cross-entropy over a large vocabulary, estimated from some of its tokens."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional


def sampled_cross_entropy(
    codes: torch.Tensor, targets: torch.Tensor, layer: nn.Linear, others: torch.Tensor
) -> torch.Tensor:
    """The cross-entropy of scores `s = layer(codes)` for `targets`, whose sum over all tokens V is estimated:

        -s_y + log(exp(s_y) + (V - 1) / n * sum of exp(s_j) over the n tokens j of `others` that are not y)

    This is importance sampling with equal chances (Bengio and Senecal, "Adaptive Importance Sampling to Accelerate
    Training of a Neural Probabilistic Language Model", IEEE Transactions on Neural Networks 2008, section III). With
    all tokens in `others` it is the cross-entropy itself.

    Args:
        codes: [N, T, D].
        targets: [N, T] int64.
        layer: D -> V.
        others: [n] int64, different tokens.
    """
    weight, bias = layer.weight, layer.bias.unsqueeze(1)
    of_target = (codes * functional.embedding(targets, weight)).sum(2) + functional.embedding(targets, bias).squeeze(2)
    scores = codes @ functional.embedding(others, weight).T + functional.embedding(others, bias).squeeze(1)
    is_target = targets.unsqueeze(2) == others
    counted = (len(others) - is_target.sum(2)).clamp(min=1)
    scale = math.log(layer.out_features - 1) - counted.log()
    rest = scores.masked_fill(is_target, -math.inf).logsumexp(2) + scale
    return (torch.logaddexp(of_target, rest) - of_target).mean()
