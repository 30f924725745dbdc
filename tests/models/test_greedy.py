"""Decoupled greedy learning: each component's classifier trains it, and nothing else does."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from alray.models.route import route_of

from ..mini_batches import forward_step

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


def test_gradients_stop_between_components(make_network) -> None:
    network = make_network(DGL, THREE)
    components = [network.component(index, "cpu") for index in range(3)]
    incoming = batch()
    for component in components:
        incoming = forward_step(component, incoming, 1)
        assert set(incoming) == {"s", "labels"} and not any(value.requires_grad for value in incoming.values())
    components[1].backward_step()
    assert all(parameter.grad is not None for parameter in components[1].parameters())
    for neighbour in (components[0], components[2]):
        assert all(parameter.grad is None for parameter in neighbour.parameters())


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_every_depth_is_a_route_over_its_own_classifier(make_network, depth: int) -> None:
    network = make_network(DGL, THREE)
    assert network.depths == (1, 2, 3)
    components = [network.component(index, "cpu").eval() for index in range(3)]
    samples = batch()["s"]
    with torch.no_grad():
        s = samples
        for component in components[:depth]:
            s = component.f.body(s)
        assert torch.equal(route_of(components, depth)(samples), components[depth - 1].head(s))


def test_the_last_component_begins_as_that_of_backpropagation(make_network) -> None:
    mine, theirs = (make_network(method).component(1, "cpu").weights() for method in (DGL, "method=backpropagation"))
    assert list(mine) == list(theirs) and all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_a_head_of_one_s_own(make_network) -> None:
    network = make_network("method={kind: decoupled_greedy, head: {pool: 2, hidden: 9}}")
    for index, channels in enumerate((4, 6)):
        widths = [parameter.shape for parameter in network.component(index, "cpu").head.parameters()]
        assert widths == [(9, channels * 4), (9,), (4, 9), (4,)]
