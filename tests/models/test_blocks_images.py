"""Blocks of images: `stem` and `residual`, their shapes, their ways around, and what they refuse."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from alray.models.shape import Shape
from tests.models.built import builder


def build(block: str, *input: int, **fields: object) -> nn.Module:
    return builder(block)(Shape(input), **fields)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("channels", "stride", "shortcut", "size", "convolution"),
    [
        (4, 1, "3x3", (5, 7), None),
        (6, 1, "3x3", (5, 7), (3, 3)),
        (6, 1, "1x1", (5, 7), (1, 1)),
        (4, 2, "3x3", (3, 4), (3, 3)),
        (6, 2, "1x1", (3, 4), (1, 1)),
        (6, 3, "1x1", (2, 3), (1, 1)),
    ],
)
def test_the_way_around_is_a_convolution_where_the_shape_changes(channels, stride, shortcut, size, convolution):
    block = build("residual", 4, 5, 7, channels=channels, layers=3, stride=stride, shortcut=shortcut)
    assert block(torch.randn(2, 4, 5, 7)).shape == (2, channels, *size)
    first, *others = (basic.shortcut for basic in block)
    assert len(others) == 2 and all(isinstance(other, nn.Identity) for other in others)
    if convolution is None:
        assert isinstance(first, nn.Identity)
    else:
        assert (first[0].kernel_size, first[0].stride) == (convolution, (stride, stride))
    assert all(layer.bias is None for layer in block.modules() if isinstance(layer, nn.Conv2d))


def test_a_basic_block_adds_its_input():
    block = build("residual", 4, 5, 5, channels=4, layers=1)
    nn.init.zeros_(block[0].convolutions[-1].weight)  # the last norm gives zero: only the way around is left
    s = torch.randn(3, 4, 5, 5)
    assert torch.equal(block(s), s.relu())
