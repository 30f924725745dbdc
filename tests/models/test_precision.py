"""Mixed precision: what computes in bfloat16, and what stays in float32."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from alray.core.errors import PlanError
from alray.models.precision import lower, require_precision, restore
from alray.models.shape import Shape
from tests.models.built import builder

from ..mini_batches import forward_step

METHODS = ["associated_learning", "supervised_contrastive", "decoupled_greedy", "backpropagation"]


def batch() -> dict[str, torch.Tensor]:
    numbers = torch.Generator().manual_seed(1)
    return {"s": torch.randn(8, 2, 8, 8, generator=numbers), "labels": torch.arange(8) % 4}


def test_a_part_computes_in_bfloat16_and_gives_float32() -> None:
    torch.manual_seed(0)
    layer, s = nn.Linear(64, 64), torch.randn(8, 64)
    exact = layer(s)
    names = list(layer.state_dict())
    lower(layer, torch.bfloat16)
    lowered = layer(s)
    assert lowered.dtype == torch.float32 and torch.equal(lowered, lowered.bfloat16().float())
    assert not torch.equal(lowered, exact) and torch.allclose(lowered, exact, atol=0.05)
    lowered.sum().backward()
    assert isinstance(layer, nn.Linear) and list(layer.state_dict()) == names
    assert {each.dtype for parameter in layer.parameters() for each in (parameter, parameter.grad)} == {torch.float32}


def test_a_copy_has_its_own_weights_and_can_be_restored() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    lower(model, torch.bfloat16)
    copied, s = copy.deepcopy(model), torch.randn(2, 4)
    with torch.no_grad():
        copied[0].weight.zero_()
        copied[0].bias.zero_()
    assert not copied(s).any() and model(s).any()
    restore(copied)
    assert type(copied) is nn.Sequential and type(model) is not nn.Sequential


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_stay_in_float32(kind: type[nn.RNNBase]) -> None:
    """cuDNN would compute them in float16, whose range is smaller."""
    torch.manual_seed(0)
    whole = nn.Sequential(nn.Linear(8, 8), kind(8, 4, batch_first=True))
    s = torch.randn(3, 5, 8)
    part = copy.deepcopy(whole)
    lower(part, torch.bfloat16)
    outputs, state = part(s)
    with torch.autocast("cpu", torch.bfloat16):
        below = whole[0](s).float()
    wanted, wanted_state = whole[1](below)
    assert torch.equal(outputs, wanted) and not torch.equal(outputs, outputs.bfloat16().float())
    states, wanted_states = (each if isinstance(each, tuple) else (each,) for each in (state, wanted_state))
    assert all(map(torch.equal, states, wanted_states))
    restore(part)
    assert [type(each) for each in part] == [nn.Linear, kind]


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_recurrent_cells_stay_in_float32(kind: type[nn.RNNCellBase]) -> None:
    torch.manual_seed(0)
    whole = nn.Sequential(nn.Linear(8, 8), kind(8, 4))
    s = torch.randn(3, 8)
    part = copy.deepcopy(whole)
    lower(part, torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        below = whole[0](s).float()
    states, wanted = (each if isinstance(each, tuple) else (each,) for each in (part(s), whole[1](below)))
    assert all(map(torch.equal, states, wanted))


def test_the_lstm_block_is_that_of_float32() -> None:
    torch.manual_seed(0)
    block = builder("lstm")(Shape((5, 8)), hidden=4)
    s, mask = torch.randn(3, 5, 8), torch.arange(5) < torch.tensor([[5], [2], [3]])
    wanted = block(s, mask)
    lower(block, torch.bfloat16)
    assert torch.equal(block(s, mask), wanted)


class _Narrow(nn.Module):
    def forward(self, s: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return s.half(), s > 0


def test_whatever_is_narrower_leaves_a_part_in_float32() -> None:
    part = _Narrow()
    lower(part, torch.bfloat16)
    halves, positive = part(torch.randn(4))
    assert halves.dtype == torch.float32 and positive.dtype == torch.bool


def test_a_gpu_that_does_not_know_bfloat16_is_named_before_a_block_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation=True: including_emulation)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "Old GPU")
    gpu = torch.device("cuda", 0)
    require_precision("float32", gpu)
    require_precision("bf16", torch.device("cpu"))
    with pytest.raises(PlanError, match=r"run\.precision: the GPU Old GPU does not know bfloat16"):
        require_precision("bf16", gpu)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_computes_in_it(make_network: Callable[..., Any], method: str) -> None:
    """Losses, weights and what is passed on are float32, and differ a little from those of a float32 run."""
    found = {}
    for precision in ("float32", "bf16"):
        network = make_network(f"method={{kind: {method}}}", f"run.precision={precision}")
        component, last = network.component(0, "cpu"), network.component(1, "cpu")
        if method == "backpropagation":
            passed_on = component.f.run(batch(), 1)
            scores = last.head(last.f.run(passed_on, 1)["s"])
            losses = {"cross_entropy": last.loss(scores, batch()["labels"])}
        else:
            passed_on = forward_step(component, batch(), 1)
            losses = component.backward_step()
        assert {value.dtype for value in passed_on.values() if value.is_floating_point()} == {torch.float32}
        assert {loss.dtype for loss in losses.values()} == {torch.float32}
        found[precision] = torch.stack(list(losses.values())).detach()
    assert not torch.equal(*found.values()) and torch.allclose(*found.values(), rtol=0.05)
