"""A backward pass in two parts ends in the bits of a whole one, and leaves the large weights to the second part."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from alray.models.split_backward import LaterWeights, SplitBackward
from tests.models import blocks_with_own_backward


class Convolutions(nn.Module):
    shape = (3, 8, 8)

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, stride=2, groups=2, bias=False)
        self.same = nn.Conv2d(8, 4, 3, padding=1)
        self.last = nn.Linear(36, 5)

    def forward(self, s: torch.Tensor) -> torch.Tensor:
        s = self.second(torch.relu(self.norm(self.first(s))))
        return self.last(self.same(s).flatten(1))


class Attention(nn.TransformerEncoderLayer):
    shape = (6, 16)

    def __init__(self) -> None:
        super().__init__(16, 2, 32, batch_first=True, dropout=0.0)


class Shared(nn.Module):
    """One weight in two layers, and outside of any layer."""

    shape = (7,)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(7, 7)

    def forward(self, s: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(self.layer(s))) + s @ self.layer.weight


class Frozen(nn.Module):
    """A weight that does not learn, a layer that is not reached, and one that is called by its function."""

    shape = (7,)

    def __init__(self) -> None:
        super().__init__()
        self.frozen, self.unused, self.used = nn.Linear(7, 7), nn.Linear(7, 7), nn.Linear(7, 4)
        self.frozen.weight.requires_grad_(False)

    def forward(self, s: torch.Tensor) -> torch.Tensor:
        self.unused(s)
        return functional.linear(self.frozen(s), self.used.weight, bias=self.used.bias)


class HookedAfterwards(nn.Module):
    """A weight gets a hook in the first pass, after its layer has run."""

    shape = (7,)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(7, 7)
        self.hooked = False

    def forward(self, s: torch.Tensor) -> torch.Tensor:
        s = torch.tanh(self.layer(s))
        if not self.hooked:
            self.layer.weight.register_hook(lambda gradient: gradient * 2.0)
            self.hooked = True
        return s


class Tied(nn.Module):
    """One weight in two layers, of which the one that runs first has a hook on its bias that came later."""

    shape = (4,)

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.hooked = False

    def forward(self, s: torch.Tensor) -> torch.Tensor:
        s = self.second(torch.tanh(self.first(s)))
        if not self.hooked:
            self.first.bias.register_hook(lambda gradient: gradient * 2.0)
            self.hooked = True
        return s


class Lowered(Convolutions):
    def forward(self, s: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(s).float()


def compared(made: type[nn.Module], shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Three micro-batches, each in two parts, end in the bits of whole backward passes."""
    torch.manual_seed(0)
    whole = made().to(dtype)
    torch.manual_seed(0)
    split = made().to(dtype)
    halves = SplitBackward([split])
    for _ in range(3):  # gradients of micro-batches are added up
        s = torch.randn(5, *shape, dtype=dtype)
        one, two = s.clone().requires_grad_(), s.clone().requires_grad_()
        expected = whole(one)
        gradient = torch.randn_like(expected)
        expected.backward(gradient)
        later = LaterWeights()
        with halves.noting():
            found = split(two)
        assert torch.equal(found, expected)
        with halves.deferring(later, [found]):
            torch.autograd.backward([found], [gradient])
        assert torch.equal(two.grad, one.grad)  # type: ignore[arg-type]
        later.compute()
        for (name, mine), theirs in zip(split.named_parameters(), whole.parameters(), strict=True):
            assert (mine.grad is None) == (theirs.grad is None), name
            if mine.grad is not None and theirs.grad is not None:
                assert torch.equal(mine.grad, theirs.grad), name
                assert mine.grad.stride() == theirs.grad.stride(), name


@pytest.mark.parametrize("made", [Convolutions, Attention, Shared, Frozen, HookedAfterwards, Lowered, Tied])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_bits_of_a_whole_backward(made: type[nn.Module], dtype: torch.dtype) -> None:
    compared(made, made.shape, dtype)  # type: ignore[attr-defined]


@pytest.mark.parametrize("made", blocks_with_own_backward.BLOCKS)
@pytest.mark.parametrize("shape", [(7,), (3, 7)])
def test_blocks_that_take_part_in_the_backward_pass(made: type[nn.Module], shape: tuple[int, ...]) -> None:
    compared(made, shape, torch.float32)


def test_large_weights_wait_for_the_second_part() -> None:
    network, later = Convolutions(), LaterWeights()
    halves = SplitBackward([network])
    with halves.noting():
        scores = network(torch.randn(2, 3, 8, 8, requires_grad=True))
    total = scores.sum()
    with halves.deferring(later, [total]):
        total.backward()
    waiting = {name for name, parameter in network.named_parameters() if parameter.grad is None}
    assert waiting == {name for name, _ in network.named_parameters()} - {"norm.weight", "norm.bias"}
    later.compute()
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize("when", ["before I", "between I and G"])
def test_a_weight_that_is_frozen_meanwhile(when: str) -> None:
    """What autograd does where the backward is whole: it counts whether it learns when the pass comes to it."""
    network, later = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), LaterWeights()
    halves = SplitBackward([network])
    with halves.noting():
        total = network(torch.randn(2, 4, requires_grad=True)).sum()
    frozen = network[1].weight
    if when == "before I":
        frozen.requires_grad_(False)
    with halves.deferring(later, [total]):
        total.backward()
    frozen.requires_grad_(False)
    later.compute()
    assert (frozen.grad is None) == (when == "before I")
    assert all(each.grad is not None for each in network.parameters() if each is not frozen)


class Reusing(nn.Module):
    """Puts what its layer reads into the same memory in every forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.read = nn.Linear(4, 4), torch.zeros(2, 4)

    def forward(self, s: torch.Tensor) -> torch.Tensor:
        return self.layer(self.read.detach().copy_(s))


class Buffered(torch.autograd.Function):
    """Gives every gradient in the same memory."""

    memory = torch.zeros(2, 4)

    @staticmethod
    def forward(ctx: Any, s: torch.Tensor) -> torch.Tensor:
        return s.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return Buffered.memory.copy_(gradient)


class ReusingGradients(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, s: torch.Tensor) -> torch.Tensor:
        return Buffered.apply(self.layer(s))  # type: ignore[no-untyped-call, no-any-return]


@pytest.mark.parametrize("made", [Reusing, ReusingGradients])
def test_what_was_overwritten_gives_no_gradient(made: type[nn.Module]) -> None:
    """The input of a layer, which autograd refuses where the second forward pass comes before the backward pass; and
    the gradient of its output."""
    network = made()
    halves, first = SplitBackward([network]), LaterWeights()
    for later in (first, LaterWeights()):
        with halves.noting():
            total = network(torch.randn(2, 4, requires_grad=True)).sum()
        with halves.deferring(later, [total]):
            total.backward()
    with pytest.raises(RuntimeError, match="overwritten in place"):
        first.compute()


class Inheriting(nn.Linear):
    """It computes what its base does."""


class Scaled(nn.Linear):
    def forward(self, s: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(s)


class Other(nn.Conv1d):
    def _conv_forward(self, s: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return functional.conv1d(s, -weight, bias)


@pytest.mark.parametrize(
    ("layer", "shape", "turned", "waits"),
    [
        (Inheriting(6, 5), (4, 6), False, True),
        (Scaled(6, 5), (4, 6), False, False),
        (Other(6, 5, 2), (6, 4), False, False),
        (parametrizations.weight_norm(nn.Linear(6, 5)), (4, 6), False, False),
        (nn.Linear(6, 5), (6,), True, True),
        (nn.Linear(6, 5), (4, 6), True, True),
        (nn.Linear(6, 5, bias=False), (3, 4, 6), True, True),
        (nn.Conv2d(6, 5, 3), (6, 7, 4), True, True),
        (nn.Conv2d(6, 5, 3, padding="same", dilation=2), (6, 7, 4), False, False),
        (nn.Conv1d(6, 5, 2, padding="same"), (6, 4), False, False),
        (nn.Conv1d(6, 5, 3, padding=1, padding_mode="circular"), (6, 4), False, False),
    ],
)
def test_which_layers_wait(layer: nn.Module, shape: tuple[int, ...], turned: bool, waits: bool) -> None:
    """The bits are those of the whole pass, also where the input does not lie in rows."""
    whole, later, halves = copy.deepcopy(layer), LaterWeights(), SplitBackward([layer])
    s = torch.randn(5, *shape)
    s = s.transpose(0, -1).contiguous().transpose(0, -1) if turned else s
    one, two = s.detach().requires_grad_(), s.detach().requires_grad_()
    expected = whole(one)
    gradient = torch.randn_like(expected)
    expected.backward(gradient)
    with halves.noting():
        found = layer(two)
    with halves.deferring(later, [found]):
        found.backward(gradient)
    assert all((parameter.grad is None) == waits for parameter in layer.parameters())
    later.compute()
    pairs = zip([two, *layer.parameters()], [one, *whole.parameters()], strict=True)
    assert all(mine.grad is not None and torch.equal(mine.grad, theirs.grad) for mine, theirs in pairs)
