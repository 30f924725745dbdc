"""Random numbers are drawn from (seed, component, step), and nothing that draws disturbs anything else."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from alray.models.encoder import module_draws

from ..mini_batches import forward_step

DROPOUT = """\
import torch
from torch import nn


class Dropout(nn.Module):
    def __init__(self, input):
        super().__init__()
        torch.rand(100, device="cpu")  # whatever the device at hand

    def forward(self, s, mask=None):
        return nn.functional.dropout(s, 0.5)
"""
TWO = "model.components=[{block: 'python:own_blocks.Dropout', repeat: 2}]"


def masks(network, index: int, *steps: int) -> list[torch.Tensor]:
    component = network.component(index, "cpu")
    return [component.f.run({"s": torch.ones(4, 2, 8, 8)}, step)["s"] for step in steps]


def test_a_mask_is_a_function_of_seed_component_and_step_whatever_ran_before(make_network):
    network = make_network(TWO, code=DROPOUT)
    (mask,) = masks(network, 1, 7)
    torch.manual_seed(1)
    torch.rand(13)
    masks(network, 0, 1, 2, 3)
    assert torch.equal(masks(network, 1, 6, 7)[1], mask)


def test_another_component_step_or_seed_draws_another_mask(make_network):
    network, other = make_network(TWO, code=DROPOUT), make_network(TWO, "seed=6")
    drawn = [*masks(network, 0, 1, 2), *masks(network, 1, 1, 2), *masks(other, 0, 1)]
    assert len({tuple(mask.flatten().tolist()) for mask in drawn}) == 5


def test_evaluation_draws_apart_from_training(make_network):
    component = make_network(TWO, code=DROPOUT).component(0, "cpu")
    ones = torch.ones(4, 2, 8, 8)
    assert not torch.equal(component.infer({"s": ones}, 3, "evaluation", 0)["s"], component.f.run({"s": ones}, 3)["s"])


def test_a_component_that_does_not_draw_leaves_the_global_stream_alone(make_network):
    component = make_network().component(0, "cpu")
    before = torch.random.get_rng_state()
    forward_step(component, {"s": torch.zeros(4, 2, 8, 8), "labels": torch.zeros(4, dtype=torch.int64)}, 1)
    component.backward_step()
    component.update_step(0.1)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_building_leaves_the_global_stream_alone(make_network):
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    network = make_network(TWO, code=DROPOUT)
    network.component(0, "cpu")
    network.component(1, "meta")
    make_network().component(1, "cpu")
    assert torch.equal(torch.random.get_rng_state(), before)


def test_initial_weights_are_a_function_of_seed_index_and_part(make_network):
    first = make_network("model.components=[{block: vgg, channels: [4], repeat: 3}]")
    torch.manual_seed(99)
    whole = [first.component(index, "cpu") for index in range(3)]
    alone = make_network("model.components=[{block: vgg, channels: [4], repeat: 3}]").component(2, "cpu")
    assert all(torch.equal(alone.weights()[name], value) for name, value in whole[2].weights().items())
    assert not torch.equal(whole[1].weights()["f.0.weight"], whole[2].weights()["f.0.weight"])
    other = make_network("model.components=[{block: vgg, channels: [4], repeat: 3}]", "seed=6").component(2, "cpu")
    assert not torch.equal(other.weights()["f.0.weight"], alone.weights()["f.0.weight"])


def test_two_parts_alike_do_not_begin_alike(make_network):
    component = make_network().component(1, "cpu")
    encoder, decoder = component.g.state_dict(), component.h.state_dict()
    assert encoder.keys() == decoder.keys()
    assert not any(torch.equal(encoder[name], decoder[name]) for name in encoder)


def test_the_parts_are_drawn_apart_so_all_methods_begin_with_the_same_encoders(make_network):
    twin = make_network("method=backpropagation")
    others = (
        "method=associated_learning",
        "method.label_dim=9",
        "method=supervised_contrastive",
        "method=decoupled_greedy",
    )
    for network in map(make_network, others):
        for index in range(2):
            mine, theirs = (each.component(index, "cpu").f.state_dict() for each in (twin, network))
            assert all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize("method", ["method=supervised_contrastive", "method=decoupled_greedy"])
def test_a_last_classifier_begins_as_that_of_backpropagation(make_network, method):
    mine, theirs = (make_network(each).component(1, "cpu").weights() for each in (method, "method=backpropagation"))
    assert list(mine) == list(theirs) and all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize(
    ("module", "draws"),
    [
        (nn.Sequential(nn.Conv2d(1, 1, 1), nn.Dropout2d(0.1)), True),
        (nn.AlphaDropout(0.1), True),
        (nn.RReLU(), True),
        (nn.LSTM(2, 2, num_layers=2, dropout=0.1), True),
        (nn.LSTM(2, 2, num_layers=2), False),
        (nn.MultiheadAttention(4, 2, dropout=0.1), True),
        (nn.MultiheadAttention(4, 2), False),
        (nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1), nn.ReLU()), False),
    ],
)
def test_layers_that_draw_are_known(module, draws):
    assert module_draws(module) is draws
