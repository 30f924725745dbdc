"""Parameter counts of the thesis's VGG-AL and of its twin by backpropagation, without allocating one of them."""

from __future__ import annotations

from torch import nn

VGG = (
    "model.components=[{block: vgg, channels: [128, 256], pool: true}, {block: vgg, channels: [256, 512], pool: true}, \
{block: vgg, channels: [512], pool: true}, {block: vgg, channels: [512], pool: true}]"
)
AL = "method={kind: associated_learning, label_dim: 700, label_activation: sigmoid, decoder_activation: sigmoid, \
first_decoder_activation: sigmoid, bridge: {pool: null, hidden: 1000}}"
BP = "method={kind: backpropagation, head: {pool: null, hidden: 2500, activation: sigmoid}}"


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_vgg_al_of_the_thesis(make_network):
    network = make_network("data.shape=[3, 32, 32]", VGG, AL, sample=(3, 32, 32), classes=200)
    components = [network.component(index, "meta") for index in range(4)]
    assert all(parameter.is_meta for component in components for parameter in component.parameters())
    assert [count(component.f) for component in components] == [299_136, 1_771_008, 2_360_320, 2_360_320]
    assert sum(count(component.b) for component in components) == 111_350_800
    assert [count(component.g) for component in components] == [140_700, 490_700, 490_700, 490_700]
    assert [count(component.h) for component in components] == [140_200, 490_700, 490_700, 490_700]


def test_backpropagation_twin_has_the_same_encoders_and_one_head(make_network):
    network = make_network("data.shape=[3, 32, 32]", VGG, BP, sample=(3, 32, 32), classes=200)
    components = [network.component(index, "meta") for index in range(4)]
    assert [count(component.f) for component in components] == [299_136, 1_771_008, 2_360_320, 2_360_320]
    assert [component.head is None for component in components] == [True, True, True, False]
    assert count(components[3].head) == (2048 * 2500 + 2500) + (2500 * 200 + 200)
    kinds = [type(module).__name__ for module in components[3].head.modules() if not list(module.children())]
    assert kinds == ["Features", "Linear", "Sigmoid", "Linear"]


def test_weights_are_named_by_part_in_the_order_of_the_hash(make_network):
    component = make_network().component(0, "cpu")
    names = list(component.weights())
    assert [name[0] for name in names] == sorted((name[0] for name in names), key="fbgh".index)
    assert names[:2] == ["f.0.weight", "f.1.weight"] and "f.1.running_mean" in names
