"""Decoupled greedy learning: each component's classifier trains it, and nothing else does."""

from __future__ import annotations

import torch
from torch.nn import functional

DGL = "method={kind: decoupled_greedy, label_smoothing: 0.1}"
THREE = "model.components=[{block: vgg, channels: [4], repeat: 3}]"


def batch() -> dict[str, torch.Tensor]:
    numbers = torch.Generator().manual_seed(0)
    return {"s": torch.randn(8, 2, 8, 8, generator=numbers), "labels": torch.arange(8) % 4}


def test_each_component_gets_the_gradient_of_its_own_cross_entropy(make_network) -> None:
    network = make_network(DGL, THREE)
    incoming = batch()
    for index in range(3):
        component = network.component(index, "cpu")
        passed_on = component.encoder_step(incoming, 1)
        encoded = component._encoded["s"]
        loss = functional.cross_entropy(component.head(encoded), incoming["labels"], label_smoothing=0.1)
        expected = torch.autograd.grad(loss, list(component.parameters()), retain_graph=True)
        passed_on |= component.label_step(incoming)
        losses = component.backward_step()
        assert list(losses) == ["cross_entropy"] and torch.equal(losses["cross_entropy"], loss)
        found = [parameter.grad for parameter in component.parameters()]
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
        incoming = passed_on


def test_a_head_of_one_s_own(make_network) -> None:
    network = make_network("method={kind: decoupled_greedy, head: {pool: 2, hidden: 9}}")
    for index, channels in enumerate((4, 6)):
        widths = [parameter.shape for parameter in network.component(index, "cpu").head.parameters()]
        assert widths == [(9, channels * 4), (9,), (4, 9), (4,)]
