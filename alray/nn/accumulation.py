"""Gradients of several mini-batches on their way into one update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn


class Accumulation:
    """The mean of the gradients of `mini_batches` mini-batches, for one update.

    Without batch normalisation, and with losses that are means over samples, it is the gradient of one mini-batch of so
    many times the size. The sum is kept apart from the parameters' own gradients, so what computes those need not know
    of it.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], mini_batches: int) -> None:
        """`mini_batches`: of one update, at least 1; with 1 nothing is kept and nothing is copied."""
        self.mini_batches = mini_batches
        self._parameters = list(parameters)
        self._sums: dict[int, torch.Tensor] = {}
        self._gathered = 0

    def gather(self) -> bool:
        """Take the parameters' gradients, those of one mini-batch; return whether an update is due.

        When it is, the parameters' gradients are the mean; when it is not, they are none.
        """
        if self.mini_batches == 1:
            return True
        for index, parameter in enumerate(self._parameters):
            gradient, parameter.grad = parameter.grad, None
            if gradient is None:
                continue
            if index in self._sums:
                self._sums[index].add_(gradient)
            else:
                self._sums[index] = gradient  # taken, not copied: backward makes a new one
        self._gathered += 1
        if self._gathered < self.mini_batches:
            return False
        for index, total in self._sums.items():
            self._parameters[index].grad = total.div_(self.mini_batches)
        self._sums, self._gathered = {}, 0
        return True

    def state_dict(self) -> dict[str, Any]:
        """Mini-batches gathered since the last update, and the sums of their gradients; empty where there are none."""
        return {"mini_batches": self._gathered, "gradients": dict(self._sums)} if self._gathered else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave.

        Raises ValueError where as many mini-batches are gathered in it as an update takes here, or more.
        """
        gathered = state.get("mini_batches", 0)
        if gathered >= self.mini_batches:
            raise ValueError(
                f"it holds the gradients of {gathered} mini-batches, and an update now takes {self.mini_batches}"
            )
        self._gathered = gathered
        self._sums = {
            index: gradient.to(self._parameters[index].device, self._parameters[index].dtype, copy=True)
            for index, gradient in state.get("gradients", {}).items()
        }
