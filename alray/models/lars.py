"""LARS, an optimizer for large mini-batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn


class LarsOptimizer(torch.optim.Optimizer):
    """LARS with momentum (You, Gitman & Ginsburg 2017, arXiv 1708.03888, algorithm 1).

    With weights w and gradient g of one parameter tensor, rate r, momentum m, weight decay d, trust coefficient c:

        local rate   a = c |w| / (|g| + d |w| + eps)          |.| is the Euclidean norm of the tensor
        momentum     v = m v + r a (g + d w)                  so a new rate does not rescale earlier steps
        update       w = w - v

    Weight decay enters the local rate and the direction. Two rules are not in the paper, but in every implementation.
    Parameters of one dimension or none (biases, scales of normalisation) have a = 1 and d = 0, because their norms say
    little. A tensor whose weights are all zero has a = 1, because a = 0 would keep it at zero.

    Every device computes tensor by tensor, without `foreach` and `fused`.
    Norms stay on the device, so that no update waits for the host.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        *,
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust_coefficient: float = 1e-3,
        eps: float = 1e-8,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "weight_decay": weight_decay,
                "trust_coefficient": trust_coefficient,
                "eps": eps,
            },
        )

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            for weights in group["params"]:
                if weights.grad is not None:
                    self._update(weights, weights.grad, group)

    def _update(self, weights: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        """Change the weights in place, with the settings of their group."""
        direction = _adapted(weights, gradient, group) if weights.ndim > 1 else gradient
        if group["momentum"] == 0:
            weights.add_(direction, alpha=-group["lr"])
            return
        state = self.state[weights]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(weights)
        velocity = state["momentum_buffer"]
        velocity.mul_(group["momentum"]).add_(direction, alpha=group["lr"])
        weights.sub_(velocity)


def _adapted(weights: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
    """a (g + d w): the direction of a weight tensor, at its local rate."""
    decay = group["weight_decay"]
    size, slope = torch.linalg.vector_norm(weights), torch.linalg.vector_norm(gradient)
    rate = group["trust_coefficient"] * size / (slope + decay * size + group["eps"])
    rate = torch.where(size > 0, rate, torch.ones_like(rate))
    return gradient.add(weights, alpha=decay).mul_(rate)
