"""Optimizers that update one tensor after another: LARS and LAMB, for large mini-batches."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, overload

import torch
from torch import nn


class TensorwiseOptimizer(torch.optim.Optimizer):
    """Every device computes tensor by tensor, without `foreach` and `fused`. A subclass updates one tensor."""

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One update of every parameter that has a gradient; `closure`, if given, computes the gradients first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weights in group["params"]:
                if weights.grad is not None:
                    self.update(weights, weights.grad, group)
        return loss

    @abstractmethod
    def update(self, weights: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        """Change the weights in place, with the settings of their group."""


class LambOptimizer(TensorwiseOptimizer):
    """LAMB (You et al. 2020, arXiv 1904.00962, algorithm 2, with the bias correction of its appendix).

    With weights w and gradient g of one parameter tensor, rate r, decay rates b1 and b2, weight decay d, after n steps:

        m = b1 m + (1 - b1) g        v = b2 v + (1 - b2) g^2
        direction    u = m / (1 - b1^n) / (sqrt(v / (1 - b2^n)) + eps) + d w
        update       w = w - r (|w| / |u|) u          |.| is the Euclidean norm of the tensor

    The paper's function of |w| is the identity here. As in LARS, parameters of one dimension or none (biases, scales
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


class LarsOptimizer(TensorwiseOptimizer):
    """LARS with momentum (You, Gitman & Ginsburg 2017, arXiv 1708.03888, algorithm 1).

    With weights w and gradient g of one parameter tensor, rate r, momentum m, weight decay d, trust coefficient c:

        local rate   a = c |w| / (|g| + d |w| + eps)          |.| is the Euclidean norm of the tensor
        momentum     v = m v + r a (g + d w)                  so a new rate does not rescale earlier steps
        update       w = w - v

    Weight decay enters the local rate and the direction. Two rules are not in the paper, but in every implementation.
    Parameters of one dimension or none (biases, scales of normalisation) have a = 1 and d = 0, because their norms say
    little. A tensor whose weights are all zero has a = 1, because a = 0 would keep it at zero.

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

    def update(self, weights: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
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
