"""Gradients have memory of their own."""

from __future__ import annotations

import torch
from torch import nn

from alray.models.gradients import separate_gradients
from alray.models.optimizers import Accumulation


def shifted() -> tuple[nn.Parameter, nn.Parameter, torch.Tensor]:
    """Two parameters that are added to one sample by views, and the sample."""
    a, b = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(4))
    s = torch.ones(1, 4, requires_grad=True)
    (s + a.unsqueeze(0) + b.unsqueeze(0)).square().sum().backward()
    return a, b, s


def test_they_do_not_share_it_with_each_other_or_with_what_goes_down() -> None:
    a, b, s = shifted()
    assert a.grad is not None and b.grad is not None and s.grad is not None
    separate_gradients([a, b], [s.grad])
    a.grad.mul_(3.0)
    assert a.grad.tolist() == [6.0] * 4 and b.grad.tolist() == s.grad.tolist()[0] == [2.0] * 4


def test_mini_batches_of_one_sample_are_added_up_once() -> None:
    a, b = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(4))
    sums = Accumulation([a, b], 2)
    for _ in range(2):
        (torch.ones(1, 4) + a.unsqueeze(0) + b.unsqueeze(0)).square().sum().backward()
        due = sums.gather()
    assert due and a.grad is not None and b.grad is not None
    assert a.grad.tolist() == b.grad.tolist() == [2.0] * 4
