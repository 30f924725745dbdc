"""LAMB: layer-wise adaptive rates on Adam, for large mini-batches."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from alray.models.tensorwise import TensorwiseOptimizer


class LambOptimizer(TensorwiseOptimizer):
    """LAMB (You et al. 2020, arXiv 1904.00962, algorithm 2, with the bias correction of its appendix).

    With weights w and gradient g of one parameter tensor, rate r, decay rates b1 and b2, weight decay d, after n steps:

        m = b1 m + (1 - b1) g        v = b2 v + (1 - b2) g^2
        direction    u = m / (1 - b1^n) / (sqrt(v / (1 - b2^n)) + eps) + d w
        update       w = w - r (|w| / |u|) u          |.| is the Euclidean norm of the tensor

    The paper's function of |w| is the identity here. As in `Lars`, parameters of one dimension or none (biases, scales
    of normalisation) have no decay and the rate r: they are updated as by Adam. So is a tensor where |w| or |u| is 0.

    Norms stay on the device, so that no update waits for the host.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def update(self, weights: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        state = self.state[weights]
        if not state:
            state.update(step=0, exp_avg=torch.zeros_like(weights), exp_avg_sq=torch.zeros_like(weights))
        state["step"] += 1
        first, second = group["betas"]
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        mean.lerp_(gradient, 1 - first)
        square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        spread = square.sqrt().div_(math.sqrt(1 - second ** state["step"])).add_(group["eps"])
        direction = mean.div(spread).div_(1 - first ** state["step"])
        if weights.ndim > 1:
            direction.add_(weights, alpha=group["weight_decay"])
            size, length = torch.linalg.vector_norm(weights), torch.linalg.vector_norm(direction)
            direction.mul_(torch.where((size > 0) & (length > 0), size / length, torch.ones_like(size)))
        weights.sub_(direction, alpha=group["lr"])
