"""What is special to LAMB; its formulas are in `tests/parts/test_optimizer_laws.py`."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from alray.models.tensorwise import LambOptimizer


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
