"""Averages over exact windows, against a computation by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from alray.models.network import Network
from alray.models.readout import Features, WindowPool
from alray.models.shape import Shape


def cuts(length: int, size: int) -> list[tuple[int, int]]:
    """First and last place of each window: all as wide as they can be, the last one takes the rest."""
    windows = min(length, size)
    width = length // windows
    return [(place * width, (place + 1) * width if place < windows - 1 else length) for place in range(windows)]


def by_hand(maps: torch.Tensor, size: int) -> torch.Tensor:
    return torch.stack(
        [
            torch.stack(
                [maps[..., top:bottom, left:right].mean((-2, -1)) for left, right in cuts(maps.shape[3], size)], -1
            )
            for top, bottom in cuts(maps.shape[2], size)
        ],
        -2,
    )


def test_the_cuts_of_ten_and_of_five_into_four():
    assert cuts(10, 4) == [(0, 2), (2, 4), (4, 6), (6, 10)]
    assert cuts(5, 4) == [(0, 1), (1, 2), (2, 3), (3, 5)]
    assert cuts(3, 4) == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize(
    ("height", "width"), [(10, 10), (4, 4), (5, 5), (3, 3), (8, 8), (10, 4), (3, 10), (1, 7), (12, 5), (1, 1)]
)
def test_window_pool(height, width):
    maps = torch.randn(2, 3, height, width, dtype=torch.float64, requires_grad=True)
    pooled, expected = WindowPool(4)(maps), by_hand(maps, 4)
    assert pooled.shape == (2, 3, min(height, 4), min(width, 4))
    torch.testing.assert_close(pooled, expected, rtol=0, atol=1e-15)
    weights = torch.randn_like(pooled)
    mine, theirs = (torch.autograd.grad((result * weights).sum(), maps)[0] for result in (pooled, expected))
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-15)


def test_one_number_of_hand():
    maps = torch.arange(5.0).expand(1, 1, 5, 5)
    assert WindowPool(4)(maps)[0, 0, 0].tolist() == [0.0, 1.0, 2.0, 3.5]


@pytest.mark.parametrize(
    ("shape", "pool", "width"), [((6, 10, 3), 4, 6 * 4 * 3), ((6, 10, 3), None, 180), ((7,), 4, 7), ((5, 3), 2, 3)]
)
def test_features_are_as_wide_as_they_say(shape, pool, width):
    features = Features(Shape(shape), pool)
    assert features.width == width
    assert features(torch.zeros(2, *shape)).shape == (2, width)


OWN = """
from torch import nn


class Block(nn.Module):
    def __init__(self, input):
        super().__init__()
        self.pooling = nn.Linear(input[1], 4)

    def forward(self, s, mask=None):
        return self.pooling(s)
"""


def test_a_block_of_the_user_may_have_a_layer_called_pooling(make_network: Callable[..., Network]) -> None:
    blocks = "model.components=[{block: 'python:own_blocks.Block'}, {block: linear, width: 4}]"
    network = make_network(blocks, "method={kind: decoupled_greedy}", code=OWN, sample=(5, 3))
    component = network.component(0, "cpu")
    incoming = network.training_input(0, 2, torch.device("cpu"))
    component.encoder_step(incoming, 0)
    component.label_step(incoming)  # a readout of it
