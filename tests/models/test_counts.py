"""Parameter counts of the thesis's networks and of their twins by backpropagation, without allocating one of them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from alray.models.shape import Shape

VGG = (
    "model.components=[{block: vgg, channels: [128, 256], pool: true}, {block: vgg, channels: [256, 512], pool: true}, \
{block: vgg, channels: [512], pool: true}, {block: vgg, channels: [512], pool: true}]"
)
RESNET = "model.components=[{block: stem, channels: 64}, {block: residual, channels: 64, layers: 2}, \
{block: residual, channels: 128, layers: 2, stride: 2}, {block: residual, channels: 256, layers: 2, stride: 2}, \
{block: residual, channels: 512, layers: 2, stride: 2}]"
TRANSFORMER = "{block: transformer, heads: 6, feedforward: 256, dropout: 0.3, repeat: 3}"
LSTM = "{block: lstm, hidden: 256, hand_on_state: true, repeat: 3}"
AL = "method={kind: associated_learning, label_dim: 700, label_activation: sigmoid, decoder_activation: sigmoid, \
first_decoder_activation: sigmoid, bridge: {pool: null, hidden: 1000}}"
BP = "method={kind: backpropagation, head: {pool: null, hidden: 2500, activation: sigmoid}}"


AL_ON_TEXT = "method={kind: associated_learning, label_dim: 128}"
TEXT = Shape((16,), torch.int64, words=("<pad>", "<unk>", *(f"word{number}" for number in range(29_998))))


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


def test_resnet18_al_of_the_thesis(make_network):
    network = make_network("data.shape=[3, 32, 32]", RESNET, AL, sample=(3, 32, 32), classes=200)
    components = [network.component(index, "meta") for index in range(5)]
    assert [count(component.f) for component in components] == [1_856, 147_968, 591_104, 2_361_856, 9_442_304]
    assert sum(count(component.b) for component in components) == 191_924_500
    assert [count(component.g) for component in components] == [140_700, *[490_700] * 4]
    assert [count(component.h) for component in components] == [140_200, *[490_700] * 4]


def test_resnet18_by_backpropagation_ends_in_an_average_and_one_layer(make_network):
    head = "method={kind: backpropagation, head: {pool: 1, hidden: null}}"
    network = make_network("data.shape=[3, 32, 32]", RESNET, head, sample=(3, 32, 32), classes=200)
    assert count(network.component(4, "meta").head) == 512 * 200 + 200


def test_shortcuts_of_1x1_are_smaller(make_network):
    network = make_network(RESNET.replace("stride: 2", "stride: 2, shortcut: 1x1"), sample=(3, 32, 32))
    assert [count(network.component(index, "meta").f) for index in (1, 2)] == [147_968, 591_104 - 8 * 64 * 128]


@pytest.mark.few
@pytest.mark.parametrize(
    ("block", "f", "b"),
    [
        (TRANSFORMER, [517_156] * 3, [38_528] * 3),
        # 2 directions x 4 gates x 256 x (input + state + 2 biases); the bridge reads 256 values.
        (LSTM, [2 * 4 * 256 * (width + 256 + 2) for width in (300, 512, 512)], [32_896] * 3),
    ],
    ids=["Transformer-AL", "LSTM-AL"],
)
def test_text_networks_of_the_thesis(make_network, block, f, b):
    chain = f"model.components=[{{block: embedding, dim: 300}}, {block}]"
    network = make_network(chain, AL_ON_TEXT, sample=TEXT, classes=4)
    components = [network.component(index, "meta") for index in range(4)]
    assert [count(component.f) for component in components] == [30_000 * 300, *f]
    assert [count(component.b) for component in components] == [38_528, *b]
    assert [count(component.g) for component in components] == [4 * 128 + 128, *[16_512] * 3]
    assert [count(component.h) for component in components] == [128 * 4 + 4, *[16_512] * 3]
    # The thesis's BP-LSTM reads the outputs of both directions at one position: 512 values.
    head = {TRANSFORMER: "auto", LSTM: "{sequence: last_word}"}[block]
    twin = make_network(chain, f"method={{kind: backpropagation, head: {head}}}", sample=TEXT, classes=4)
    assert count(twin.component(3, "meta").head) == {TRANSFORMER: 300, LSTM: 512}[block] * 4 + 4


def test_by_default_a_classifier_reads_what_a_bridge_reads(make_network):
    chain = f"model.components=[{{block: embedding, dim: 300}}, {LSTM}]"
    twin = make_network(chain, "method={kind: backpropagation}", sample=TEXT, classes=4)
    assert count(twin.component(3, "meta").head) == 256 * 4 + 4


def test_weights_are_named_by_part_in_the_order_of_the_hash(make_network):
    component = make_network().component(0, "cpu")
    names = list(component.weights())
    assert [name[0] for name in names] == sorted((name[0] for name in names), key="fbgh".index)
    assert names[:2] == ["f.0.weight", "f.1.weight"] and "f.1.running_mean" in names
