"""Cuts by trial: each cut of each of these models is exact, or it is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from alray.models.imported.absent import Form
from alray.models.imported.cutting import Refused
from alray.models.imported.recording import Step
from alray.models.imported.steps import name_of
from alray.models.shape import Shape
from tests.models.chains import SAME, apart, cutter_of, parts_of

WIDTH = 16
ROW = Shape((12,), torch.float64)
IMAGE = Shape((3, 16, 16), torch.float64)
SERIES = Shape((10, 3), torch.float64)
WORDS = Shape((9,), torch.int64, tuple(f"w{number}" for number in range(30)))
TOKENS = Shape((9,), torch.int64, tokens=30)


def has_tensors(step: Step) -> bool:
    return any(isinstance(each, Form) for each in step.gives.leaves)


def linear(count: int, width: int = WIDTH) -> nn.ModuleList:
    return nn.ModuleList(nn.Linear(width, width) for _ in range(count))


class Functional(nn.Module):
    """Functions between layers, a skip, and batch normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.c1, self.c2, self.c3 = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3)
        self.bn = nn.BatchNorm2d(8)
        self.last = nn.Linear(8 * 9, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(functional.relu(self.bn(self.c1(x))), 2)
        x = functional.dropout(x + self.c2(x).relu_(), 0.3, self.training)
        x = functional.avg_pool2d(self.c3(x), 2)
        result: torch.Tensor = self.last(x.flatten(1))
        return result


class UNet(nn.Module):
    """Skips over several cuts, kept in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)])
        self.middle = nn.Conv2d(8, 8, 3, padding=1)
        self.up = nn.ModuleList([nn.Conv2d(16, 4, 3, padding=1), nn.Conv2d(8, 4, 3, padding=1)])
        self.last = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for layer in self.down:
            x = layer(x).relu()
            skips.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.middle(x)
        for layer in self.up:
            x = layer(torch.cat([functional.interpolate(x, scale_factor=2.0), skips.pop()], 1)).relu()
        result: torch.Tensor = self.last(x.mean((2, 3)))
        return result


class TwoLSTMs(nn.Module):
    """Two recurrent layers, the second one begins with the state of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.r1, self.r2 = nn.LSTM(3, WIDTH, batch_first=True), nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.last = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, state = self.r1(x)
        x, _ = self.r2(x, state)
        result: torch.Tensor = self.last(x[:, -1])
        return result


class PaddingMask(nn.Module):
    """Makes a mask of its samples, and has positions in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, WIDTH, padding_idx=0)
        self.register_buffer("places", torch.randn(9, WIDTH))
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.1, batch_first=True) for _ in range(2))
        self.last = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padding = x == 0
        h = self.embedding(x) + self.places[: x.shape[1]]
        for layer in self.layers:
            h = layer(h, src_key_padding_mask=padding)
        result: torch.Tensor = self.last(h.masked_fill(padding[..., None], 0.0).sum(1))
        return result


class TakesMask(nn.Module):
    """Gets the mask of a text's words, and divides by its number of positions behind its pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, WIDTH)
        self.layers = linear(3)
        self.last = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        h = self.embedding(x)
        for layer in self.layers[:2]:
            h = h + layer(h).tanh()
        h = (h * mask[..., None]).sum(1)
        result: torch.Tensor = self.last(self.layers[2](h) / x.shape[1])
        return result


class FrozenBelow(nn.Module):
    """Features under no_grad, and a switch of gradients as a function."""

    def __init__(self) -> None:
        super().__init__()
        self.below, self.above = linear(2, 12), linear(2, 12)
        self.last = nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x = self.below[0](x).relu()
        h = self.above[0](x)
        torch.set_grad_enabled(False)
        gate = self.below[1](h).sigmoid()
        torch.set_grad_enabled(self.training)
        result: torch.Tensor = self.last(self.above[1](h * gate).relu())
        return result


class RareBranch(nn.Module):
    """Takes a branch by a value, and logs another one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = linear(3, 12)
        self.last = nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.layers[0](x)
        self.layers[1](a).sum().item()
        b = self.layers[1](a).relu()
        if b.mean() > 1000:
            b = b + a
        result: torch.Tensor = self.last(self.layers[2](b).relu())
        return result


class Counter(nn.Module):
    """Counts its calls in a buffer, and keeps a mean of its activations."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = linear(3, 12)
        self.last = nn.Linear(12, 4)
        self.register_buffer("mean", torch.zeros(12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.layers[0](x)
        h = self.layers[1](h).relu()
        if self.training:
            with torch.no_grad():
                self.mean.mul_(0.9).add_(0.1 * h.mean(0))
        result: torch.Tensor = self.last(self.layers[2](h - self.mean).relu())
        return result


class Shared(nn.Module):
    """Calls one layer twice, and uses the weight of another one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = linear(3, 12)
        self.last = nn.Linear(12, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.layers[0](self.layers[1](self.layers[0](x)).relu())
        result: torch.Tensor = self.last(self.layers[2](h).relu()) @ self.last.weight.T
        return result


class Experts(nn.Module):
    """Sends rows to experts by an index."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.gate, self.experts = nn.Linear(12, 12), nn.Linear(12, 2), linear(2, 12)
        self.last = nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        chosen = self.gate(h).argmax(1)
        gave = torch.zeros_like(h)
        for number, expert in enumerate(self.experts):
            (rows,) = torch.where(chosen == number)
            gave = gave.index_add(0, rows, expert(h[rows]))
        result: torch.Tensor = self.last(gave)
        return result


class Draws(nn.Module):
    """Draws in forward, writes in place, calls `forward` itself and gives features by name."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = linear(4, 12)
        self.last = nn.Linear(12, 4)

    def features(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        h = self.layers[0](x)
        h += torch.rand_like(h)
        return {"low": h, "high": self.layers[1].forward(h)}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.features(x)
        out = torch.empty_like(found["low"])
        out[:, :6] = self.layers[2](found["high"])[:, :6] * torch.randn(1)
        out[:, 6:] = self.layers[3](found["low"])[:, 6:]
        result: torch.Tensor = self.last(out)
        return result


class OneTensor(nn.Module):
    """Hands on one tensor under two names, which three functions use: their gradients are added in one order."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = linear(3, 12)
        self.same = nn.Identity()
        self.last = nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x
        for layer in self.layers:
            h = layer(h)
            residual = self.same(h).to(h.dtype)
            h = residual + h.tanh() * h.sigmoid()
        result: torch.Tensor = self.last(h)
        return result


@pytest.mark.parametrize(
    ("make", "sample", "least"),
    [
        (Functional, IMAGE, 9),
        (UNet, IMAGE, 12),
        (TwoLSTMs, SERIES, 2),
        (PaddingMask, TOKENS, 10),
        (TakesMask, WORDS, 8),
        (FrozenBelow, ROW, 5),
        (RareBranch, ROW, 1),  # none after it has read a value
        (Counter, ROW, 4),
        (Shared, ROW, 2),
        (Experts, ROW, 1),
        (Draws, ROW, 5),
        (OneTensor, ROW, 8),
    ],
)
def test_each_cut_is_exact_or_refused(
    make: Callable[[], nn.Module], sample: Shape, least: int, one_thread: None
) -> None:
    torch.manual_seed(1)
    model = make().double()
    cutter = cutter_of(model, sample)
    exact, wrong = [], {}
    for step in cutter.steps:
        if step.again or not has_tensors(step) or (step.module is None and "." in name_of(step.key)):
            continue
        try:
            parts = parts_of(cutter, model, [step.key])
        except Refused as refused:
            wrong[name_of(step.key)] = str(refused)
            continue
        found: Any = apart(model, parts, sample)
        assert found == SAME, (name_of(step.key), found)
        names = [name for part in parts for name, _ in part.named_parameters()]
        assert len(names) == len(set(names))
        exact.append(step.key)
    assert len(exact) >= least, wrong
    if len(exact) > 2:
        chain = [exact[len(exact) // 4], exact[len(exact) // 2], exact[3 * len(exact) // 4]]
        assert apart(model, parts_of(cutter, model, chain), sample) == SAME
