"""Parameters of networks, without allocating them; `tests/test_full_size.py` counts those of the thesis's networks."""

from __future__ import annotations

import torch
from torch import nn

from alray.models.shape import Shape

LSTM = "{block: lstm, hidden: 256, hand_on_state: true, repeat: 3}"
TEXT = Shape((16,), torch.int64, words=("<pad>", "<unk>", *(f"word{number}" for number in range(29_998))))


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_a_classifier_with_a_hidden_layer(make_network):
    head = "method={kind: backpropagation, head: {pool: null, hidden: 2500, activation: sigmoid}}"
    classifier = make_network(head).component(1, "meta").head
    kinds = [type(module).__name__ for module in classifier.modules() if not list(module.children())]
    assert kinds == ["Features", "Linear", "Sigmoid", "Linear"]


def test_by_default_a_classifier_reads_what_a_bridge_reads(make_network):
    chain = f"model.components=[{{block: embedding, dim: 300}}, {LSTM}]"
    twin = make_network(chain, "method={kind: backpropagation}", sample=TEXT, classes=4)
    assert count(twin.component(3, "meta").head) == 256 * 4 + 4


def test_weights_are_named_by_part_in_the_order_of_the_hash(make_network):
    component = make_network().component(0, "cpu")
    names = list(component.weights())
    assert [name[0] for name in names] == sorted((name[0] for name in names), key="fbgh".index)
    assert names[:2] == ["f.0.weight", "f.1.weight"] and "f.1.running_mean" in names
