"""A route as one module: the bits of an evaluation, and the same values where rows cannot be packed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from alray.models.route import route_of
from alray.parts.blocks.lstm.block import run_unpacked
from alray.runtime.probe.estimate import estimate_costs
from alray.runtime.stage.assemble import work_of

OWN = """\
import torch
from torch import nn

class Shifted(nn.Module):
    def __init__(self, input):
        super().__init__()
        self.scale = nn.Parameter(torch.full((1,), 1.5))

    def forward(self, s, mask=None):
        return s.add_(1.0).mul(self.scale).clone(memory_format=torch.channels_last)
"""
CHAIN = """\
name: small
seed: 5
data: {source: synthetic, shape: [2, 8, 8], classes: 4, samples: 60, batch_size: 8}
model:
  components:
    - {block: "python:own_blocks.Shifted"}
    - {block: vgg, channels: [4], pool: true}
    - {block: mlp, widths: [8], dropout: 0.5}
method: {kind: associated_learning, label_dim: 5}
run: {epochs: 1}
"""

METHODS = [
    "associated_learning",
    "backpropagation",
    "supervised_contrastive",
    "decoupled_greedy",
    "mono_forward",
    "local_error_signals",
    "decoupled_information",
    "forward_forward",
    "{kind: forward_forward, prediction: activities}",
    "noprop",
    "auglocal",
]
ONE_ROUTE = ("backpropagation", "supervised_contrastive", "noprop", "auglocal")
NO_AFFILIATES = ("backpropagation", "mono_forward", "forward_forward", "noprop")


@pytest.mark.few
@pytest.mark.parametrize("method", METHODS)
def test_a_route_gives_the_bits_of_an_evaluation(make_network: Callable[..., Any], method: str) -> None:
    network = make_network(f"method={method}", text=CHAIN, code=OWN)
    components = [network.component(index, "cpu") for index in range(3)]
    stage = work_of(components)
    stage.evaluation_mode(True)
    samples = torch.randn(6, 2, 8, 8)
    before = samples.clone()
    _, expected = stage.infer_up({"s": samples.clone()}, 1, 0)
    depths = [index + 1 for index in range(3) if network.ends_route(index)]
    assert len(expected) == len(depths) == (1 if method in ONE_ROUTE else 3)
    for depth, scores in zip(depths, expected, strict=True):
        with torch.no_grad():
            assert torch.equal(route_of(components, depth)(samples), scores)
        assert torch.equal(samples, before), "the caller's samples are left alone"


@pytest.mark.few
@pytest.mark.parametrize("method", METHODS)
def test_the_parameters_of_a_route_are_counted_as_it_has_them(make_network: Callable[..., Any], method: str) -> None:
    network = make_network(f"method={method}", text=CHAIN, code=OWN)
    components = [network.component(index, "cpu") for index in range(3)]
    costs = estimate_costs(network, batch_size=8, device=torch.device("cpu"))
    parameters = [sum(p.numel() for p in component.parameters()) for component in components]
    assert [sum(entry.parts.values()) for entry in costs.components] == parameters
    for depth in network.depths:
        assert costs.route_parameters(depth) == sum(p.numel() for p in route_of(components, depth).parameters())
    affiliate = sum(parameters) - costs.route_parameters(3)
    assert (affiliate == 0) == (method in NO_AFFILIATES)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("with_state", [False, True])
def test_an_unpacked_lstm_is_a_packed_one(bidirectional: bool, layers: int, with_state: bool) -> None:
    torch.manual_seed(3)
    lstm = nn.LSTM(5, 4, num_layers=layers, bidirectional=bidirectional, batch_first=True).eval()
    lengths = torch.tensor([7, 3, 1, 5])
    mask = torch.arange(7) < lengths.unsqueeze(1)
    s = torch.randn(4, 7, 5)  # not zero at padded positions: nothing may come from there
    number = layers * (2 if bidirectional else 1)
    before = (torch.randn(number, 4, 4), torch.randn(number, 4, 4)) if with_state else None
    with torch.no_grad():
        packed, after = lstm(pack_padded_sequence(s, lengths, batch_first=True, enforce_sorted=False), before)
        expected, _ = pad_packed_sequence(packed, batch_first=True, total_length=7)
        outputs, states = run_unpacked(lstm, s, mask, before)
    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(states, after, rtol=0, atol=1e-6)
    assert not outputs[~mask].any()
