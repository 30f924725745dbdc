"""Gradients of several mini-batches in one update: the same as of one mini-batch as large as all of them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter
from torch import nn

from alray.config.sections.optimizer import Optimizer
from alray.models.optimizers import ComponentOptimizer, Recipe, recipe

VALUES = {
    "sgd": {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    "adam": {"lr": 0.01, "betas": (0.9, 0.999), "eps": 1e-8},
    "lars": {"lr": 1.0, "momentum": 0.9, "trust_coefficient": 0.01, "eps": 1e-8},
}


def spec(kind: str, accumulate: int, **values: Any) -> Recipe:
    section = {"kind": kind, "accumulate": accumulate, "weight_decay": 0.01, **VALUES[kind], **values}
    return recipe(TypeAdapter[Optimizer](Optimizer).validate_python(section))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()


def train(model: nn.Module, optimizer: ComponentOptimizer, batches: torch.Tensor) -> list[bool]:
    """One mini-batch after another; whether each of them changed the weights."""
    changed = []
    for batch in batches:
        optimizer.zero_grad()
        before = copy.deepcopy(model.state_dict())
        model(batch).square().mean().backward()
        optimizer.step(optimizer_rate(optimizer))
        changed.append(any(not torch.equal(value, before[name]) for name, value in model.state_dict().items()))
    return changed


def optimizer_rate(optimizer: ComponentOptimizer) -> float:
    return float(VALUES[optimizer.kind]["lr"])  # type: ignore[arg-type]


@pytest.fixture
def samples() -> torch.Tensor:
    return torch.randn(24, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("clip_norm", [None, 0.05])
def test_as_one_mini_batch_of_all_samples(kind: str, clip_norm: float | None, samples: torch.Tensor) -> None:
    """Also where gradients are clipped: it is the mean that is clipped."""
    parts, whole = network(), network()
    one = ComponentOptimizer(list(parts.parameters()), spec(kind, 3, clip_norm=clip_norm))
    assert train(parts, one, samples.reshape(6, 4, 5)) == [False, False, True] * 2
    other = ComponentOptimizer(list(whole.parameters()), spec(kind, 1, clip_norm=clip_norm))
    assert train(whole, other, samples.reshape(2, 12, 5)) == [True, True]
    torch.testing.assert_close(parts.state_dict(), whole.state_dict(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_a_run_that_stops_between_two_updates_goes_on_in_the_same_bits(cut: int, samples: torch.Tensor) -> None:
    batches = samples.reshape(6, 4, 5)
    straight, stopped = network(), network()
    train(straight, ComponentOptimizer(list(straight.parameters()), spec("adam", 3)), batches)
    first = ComponentOptimizer(list(stopped.parameters()), spec("adam", 3))
    train(stopped, first, batches[:cut])
    state = copy.deepcopy(first.state_dict())
    assert ("accumulation" in state) == (cut % 3 != 0)
    second = ComponentOptimizer(list(stopped.parameters()), spec("adam", 3))
    second.load_state_dict(state)
    train(stopped, second, batches[cut:])
    assert all(torch.equal(value, stopped.state_dict()[name]) for name, value in straight.state_dict().items())


def test_what_is_loaded_is_a_copy(samples: torch.Tensor) -> None:
    model = network()
    one = ComponentOptimizer(list(model.parameters()), spec("sgd", 3))
    train(model, one, samples[:4].reshape(1, 4, 5))
    state = one.state_dict()
    kept = copy.deepcopy(state)
    other = ComponentOptimizer(list(model.parameters()), spec("sgd", 3))
    other.load_state_dict(state)
    train(model, other, samples[4:8].reshape(1, 4, 5))
    for index, gradient in kept["accumulation"]["gradients"].items():
        assert torch.equal(gradient, state["accumulation"]["gradients"][index])


def test_gathering_is_once_a_mini_batch_and_shows_the_gradient_of_the_update() -> None:
    """What replicas do: gather, add the gradients up where an update is due, then step."""
    weight = nn.Parameter(torch.zeros(2))
    optimizer = ComponentOptimizer([weight], spec("sgd", 2, momentum=0.0, nesterov=False, weight_decay=0.0))
    optimizer.zero_grad()
    weight.grad = torch.tensor([1.0, 2.0])
    assert not optimizer.gather() and not optimizer.gather()
    assert weight.grad is None
    optimizer.step(1.0)
    optimizer.zero_grad()
    weight.grad = torch.tensor([3.0, 2.0])
    assert optimizer.gather() and optimizer.gather()
    assert torch.equal(weight.grad, torch.tensor([2.0, 2.0]))
    weight.grad.mul_(10.0)
    optimizer.step(1.0)
    assert torch.equal(weight.detach(), torch.tensor([-20.0, -20.0]))


def test_a_parameter_that_had_a_gradient_in_some_mini_batches_counts_zero_in_the_others() -> None:
    often, seldom, never = (nn.Parameter(torch.zeros(1)) for _ in range(3))
    optimizer = ComponentOptimizer([often, seldom, never], spec("sgd", 2, momentum=0.0, nesterov=False))
    often.grad, seldom.grad = torch.ones(1), torch.ones(1)
    optimizer.step(1.0)
    optimizer.zero_grad()
    often.grad = torch.ones(1)
    assert optimizer.gather()
    assert (often.grad.item(), seldom.grad.item(), never.grad) == (1.0, 0.5, None)  # type: ignore[union-attr]


def test_more_gathered_than_an_update_takes_is_refused() -> None:
    weight = nn.Parameter(torch.zeros(1))
    optimizer = ComponentOptimizer([weight], spec("sgd", 3))
    for _ in range(2):
        weight.grad = torch.ones(1)
        optimizer.step(1.0)
    with pytest.raises(ValueError, match="it holds the gradients of 2 mini-batches, and an update now takes 2"):
        ComponentOptimizer([weight], spec("sgd", 2)).load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize(("kind", "number"), [("sgd", 2), ("adam", 3), ("lars", 2)])
def test_the_memory_of_waiting_gradients_is_counted(kind: str, number: int) -> None:
    weight = nn.Parameter(torch.zeros(1))
    assert ComponentOptimizer([weight], spec(kind, 2)).state_bytes() == 4 * number
    assert ComponentOptimizer([weight], spec(kind, 1)).state_bytes() == 4 * (number - 1)
