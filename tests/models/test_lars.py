"""What is special to LARS; its formulas are in `tests/parts/test_optimizer_laws.py`."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from alray.models.tensorwise import LarsOptimizer


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
