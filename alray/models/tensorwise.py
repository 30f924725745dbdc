"""Optimizers that update one tensor after another."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, overload

import torch


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
