"""LAMB against the formulas of the paper, written out with numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from alray.parts.optimizers.lamb.lamb import LambOptimizer

Array = NDArray[np.float64]


def by_hand(
    weights: Array, gradients: list[Array], rates: list[float], *, betas: tuple[float, float], eps: float, decay: float
) -> Array:
    """Algorithm 2 of arXiv 1904.00962 for one tensor; of one dimension: Adam without decay."""
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    for number, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        mean = betas[0] * mean + (1 - betas[0]) * gradient
        square = betas[1] * square + (1 - betas[1]) * gradient**2
        direction = mean / (1 - betas[0] ** number) / (np.sqrt(square / (1 - betas[1] ** number)) + eps)
        if weights.ndim > 1:
            direction = direction + decay * weights
            direction = direction * np.sqrt((weights**2).sum()) / np.sqrt((direction**2).sum())
        weights = weights - rate * direction
    return weights


@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 3, 3), (5,), ()])
def test_as_by_hand(shape: tuple[int, ...], decay: float) -> None:
    draws = np.random.default_rng(0)
    start: Array = np.asarray(draws.normal(size=shape))
    gradients = [np.asarray(draws.normal(size=shape)) for _ in range(4)]
    rates = [0.5, 0.1, 0.02, 0.1]
    weights = nn.Parameter(torch.tensor(start))
    optimizer = LambOptimizer([weights], lr=7.0, betas=(0.8, 0.95), weight_decay=decay, eps=1e-3)
    for gradient, rate in zip(gradients, rates, strict=True):
        weights.grad = torch.tensor(gradient)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
    expected = by_hand(start, gradients, rates, betas=(0.8, 0.95), eps=1e-3, decay=decay)
    np.testing.assert_allclose(weights.detach().numpy(), expected, rtol=1e-10)


def test_a_bias_is_updated_as_by_adam() -> None:
    mine, theirs = (nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64)) for _ in range(2))
    lamb, adam = LambOptimizer([mine], lr=0.1, eps=1e-8, weight_decay=0.5), torch.optim.Adam([theirs], lr=0.1, eps=1e-8)
    for number in range(5):
        mine.grad, theirs.grad = (torch.cos(each.detach() * number) for each in (mine, theirs))
        lamb.step()
        adam.step()
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=0)


def test_a_step_is_as_long_as_the_rate_times_the_weights_whatever_the_gradient() -> None:
    for length in (1e-3, 1e3):
        weights = nn.Parameter(torch.full((2, 2), 3.0, dtype=torch.float64))
        weights.grad = torch.full_like(weights, length)
        LambOptimizer([weights], lr=0.01).step()
        assert (3.0 - weights.detach()).norm() == pytest.approx(0.01 * 6.0, rel=1e-9)


def test_weights_of_zero_leave_zero_and_gradients_of_zero_change_nothing() -> None:
    weights = nn.Parameter(torch.zeros(2, 2))
    optimizer = LambOptimizer([weights], lr=0.5)
    weights.grad = torch.zeros(2, 2)
    optimizer.step()
    assert torch.equal(weights, torch.zeros(2, 2))
    weights.grad = torch.ones(2, 2)
    optimizer.step()
    assert weights.abs().min() > 0.0 and weights.isfinite().all()


def test_a_parameter_without_a_gradient_is_left_alone() -> None:
    weights = nn.Parameter(torch.ones(2, 2))
    LambOptimizer([weights], lr=1.0).step()
    assert torch.equal(weights, torch.ones(2, 2))
