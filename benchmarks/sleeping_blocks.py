"""Blocks that compute nothing and take their time: they sleep in proportion to the rows of a mini-batch, both ways."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

_AWAKE_S = 1.5e-4


def sleep_exactly(seconds: float) -> None:
    """`time.sleep` comes back some 0.1 ms late; this one goes through the last of them awake."""
    until = time.perf_counter() + seconds
    time.sleep(max(0.0, seconds - _AWAKE_S))
    while time.perf_counter() < until:
        pass


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, s: torch.Tensor, anchor: torch.Tensor, forward_s: float, backward_s: float) -> torch.Tensor:
        ctx.backward_s = backward_s * len(s)
        if s.device.type != "meta":
            sleep_exactly(forward_s * len(s))
        return s.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        if gradients[0].device.type != "meta":
            sleep_exactly(ctx.backward_s)
        return gradients[0], None, None, None


class _SleepBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds
        return weight.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        if gradients[0].device.type != "meta":
            sleep_exactly(ctx.seconds)
        return gradients[0], None


class Sleeping(nn.Module):
    """`forward_ms` and `backward_ms` are for `rows` rows; in evaluation it does not sleep."""

    def __init__(self, input: tuple[int, ...], forward_ms: float, backward_ms: float, rows: int) -> None:
        super().__init__()
        self.forward_s, self.backward_s = forward_ms / 1e3 / rows, backward_ms / 1e3 / rows

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        if not self.training:
            return s
        # The block has no parameters; what makes autograd come back to it is not one of the network's.
        anchor = torch.zeros((), device=s.device, requires_grad=True)
        result: torch.Tensor = _Sleep.apply(s, anchor, self.forward_s, self.backward_s)
        return result


class SleepingLayer(Sleeping):
    """With a weight, whose gradient takes half of `backward_ms`.

    alray splits the backward passes of linear and convolutional layers alone, so this half does not wait in its zero
    bubble. It does in that of torch.distributed.pipelining.
    """

    def __init__(self, input: tuple[int, ...], forward_ms: float, backward_ms: float, rows: int) -> None:
        super().__init__(input, forward_ms, backward_ms / 2, rows)
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        weight: torch.Tensor = _SleepBack.apply(self.weight, self.backward_s * len(s)) if self.training else self.weight
        return super().forward(s, mask) + weight
