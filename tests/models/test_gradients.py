"""Gradients have memory of their own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from alray.models.gradients import separate_gradients
from alray.models.optimizers import Accumulation

from ..conftest import OWN_BLOCKS


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


def test_a_gradient_within_another_one_is_copied() -> None:
    """As of a token at another place than the first, with positions."""
    token, positions = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(3, 4))
    s = torch.cat([torch.ones(1, 2, 4), token.view(1, 1, -1)], 1) + positions.unsqueeze(0)
    (s * torch.arange(12.0).view(1, 3, 4)).sum().backward()
    assert token.grad is not None and positions.grad is not None
    separate_gradients([token, positions])
    token.grad.mul_(3.0)
    positions.grad.mul_(5.0)
    assert token.grad.tolist() == [24.0, 27.0, 30.0, 33.0]
    assert positions.grad[2].tolist() == [40.0, 45.0, 50.0, 55.0]


def test_gradients_that_lie_beside_each_other_stay() -> None:
    memory = torch.arange(8.0)
    a, b = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(4))
    a.grad, b.grad = memory[:4], memory[4:]
    separate_gradients([a, b])
    assert a.grad.data_ptr() == memory.data_ptr() and b.grad.data_ptr() == memory[4:].data_ptr()


def test_mini_batches_of_one_sample_are_added_up_once() -> None:
    a, b = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(4))
    sums = Accumulation([a, b], 2)
    for _ in range(2):
        (torch.ones(1, 4) + a.unsqueeze(0) + b.unsqueeze(0)).square().sum().backward()
        due = sums.gather()
    assert due and a.grad is not None and b.grad is not None
    assert a.grad.tolist() == b.grad.tolist() == [2.0] * 4


SHIFTED = """
import torch


class Shifted(torch.nn.Module):
    def __init__(self, input):
        super().__init__()
        self.a, self.b = (torch.nn.Parameter(torch.ones(input.elements)) for _ in range(2))

    def forward(self, s, mask=None):
        return torch.tanh(s.flatten(1) + self.a.unsqueeze(0) + self.b.unsqueeze(0))
"""


@pytest.mark.parametrize("method", ["{kind: associated_learning, label_dim: 12}", "decoupled_greedy"])
def test_local_losses_leave_gradients_of_their_own(make_network, method: str) -> None:
    """Averages over replicas, and some optimizers, write on them."""
    network = make_network(
        f"method={method}",
        f"model.components=[{{block: linear, width: 5}}, {{block: 'python:{OWN_BLOCKS[:-3]}.Shifted'}}]",
        code=SHIFTED,
    )
    component = network.component(1, "cpu")
    incoming = {"s": torch.randn(1, 5), "labels": torch.tensor([1])}
    if "associated" in method:
        incoming["t"] = torch.randn(1, 12)
    component.encoder_step(incoming, 1)
    component.label_step(incoming)
    component.backward_step()
    body = component.f.body
    before = body.b.grad.clone()
    body.a.grad.mul_(3.0)
    assert before.any() and torch.equal(body.b.grad, before)
