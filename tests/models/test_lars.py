"""LARS against the formulas of the paper, written out with numpy in float64."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from alray.parts.optimizers.lars.lars import LarsOptimizer

Array = NDArray[np.float64]


def by_hand(
    weights: Array,
    gradients: list[Array],
    rates: list[float],
    *,
    momentum: float,
    decay: float,
    trust: float,
    eps: float,
) -> Array:
    """Algorithm 1 of arXiv 1708.03888 for one tensor; of one dimension: neither adapted nor decayed."""
    velocity = np.zeros_like(weights)
    for gradient, rate in zip(gradients, rates, strict=True):
        if weights.ndim > 1:
            size, slope = np.sqrt((weights**2).sum()), np.sqrt((gradient**2).sum())
            local = trust * size / (slope + decay * size + eps) if size > 0 else 1.0
            direction = local * (gradient + decay * weights)
        else:
            direction = gradient
        velocity = momentum * velocity + rate * direction
        weights = weights - velocity
    return weights


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("decay", [0.0, 5e-4])
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 3, 3), (5,), ()])
def test_as_by_hand(shape: tuple[int, ...], decay: float, momentum: float) -> None:
    draws = np.random.default_rng(0)
    start: Array = np.asarray(draws.normal(size=shape))
    gradients = [np.asarray(draws.normal(size=shape)) for _ in range(4)]
    rates = [0.5, 1.0, 4.0, 0.1]
    weights = nn.Parameter(torch.tensor(start))
    optimizer = LarsOptimizer(
        [weights], lr=7.0, momentum=momentum, weight_decay=decay, trust_coefficient=0.02, eps=1e-3
    )
    for gradient, rate in zip(gradients, rates, strict=True):
        weights.grad = torch.tensor(gradient)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
    expected = by_hand(start, gradients, rates, momentum=momentum, decay=decay, trust=0.02, eps=1e-3)
    np.testing.assert_allclose(weights.detach().numpy(), expected, rtol=1e-12)


def test_a_rate_that_falls_does_not_shrink_what_momentum_carries() -> None:
    bias = nn.Parameter(torch.zeros(1))
    optimizer = LarsOptimizer([bias], lr=1.0, momentum=0.5)
    bias.grad = torch.ones(1)
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.0
    optimizer.step()
    assert bias.item() == -1.5


def test_the_step_does_not_depend_on_how_long_the_gradient_is() -> None:
    moved = []
    for length in (1.0, 1000.0):
        weights = nn.Parameter(torch.full((2, 2), 3.0))
        weights.grad = torch.full((2, 2), length)
        LarsOptimizer([weights], lr=1.0, trust_coefficient=0.001).step()
        moved.append(float((weights - 3.0).detach().norm() / 6.0))
    assert moved == pytest.approx([0.001, 0.001], rel=1e-4)


def test_weights_of_zero_and_gradients_of_zero() -> None:
    weights = nn.Parameter(torch.zeros(2, 2))
    weights.grad = torch.ones(2, 2)
    optimizer = LarsOptimizer([weights], lr=0.5, momentum=0.0)
    optimizer.step()
    assert torch.equal(weights, torch.full((2, 2), -0.5))
    weights.grad = torch.zeros(2, 2)
    optimizer.step()
    assert torch.equal(weights, torch.full((2, 2), -0.5))


def test_a_parameter_without_a_gradient_is_left_alone() -> None:
    weights = nn.Parameter(torch.ones(2, 2))
    LarsOptimizer([weights], lr=1.0).step()
    assert torch.equal(weights, torch.ones(2, 2))


def test_a_closure_computes_the_gradients() -> None:
    bias = nn.Parameter(torch.ones(1))
    optimizer = LarsOptimizer([bias], lr=0.25, momentum=0.0)

    def closure() -> float:
        loss = 2.0 * bias.sum()
        loss.backward()
        return float(loss.detach())

    assert optimizer.step(closure) == 2.0 and bias.item() == 0.5


def test_going_on_from_its_state_is_exact() -> None:
    def trained(steps: int, weights: nn.Parameter, optimizer: LarsOptimizer) -> None:
        for step in range(steps):
            weights.grad = torch.cos(weights.detach() * (step + 1))
            optimizer.step()

    weights = nn.Parameter(torch.arange(6.0).reshape(2, 3))
    optimizer = LarsOptimizer([weights], lr=5.0, weight_decay=1e-3)
    trained(3, weights, optimizer)
    other = nn.Parameter(weights.detach().clone())
    resumed = LarsOptimizer([other], lr=5.0, weight_decay=1e-3)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    trained(3, weights, optimizer)
    trained(3, other, resumed)
    assert torch.equal(weights, other)
