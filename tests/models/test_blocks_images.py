"""Blocks of images: `stem` and `residual`, their shapes, their ways around, and what they refuse."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from alray.core.errors import SpecError
from alray.models.shape import Shape
from tests.models.built import builder


def build(block: str, *input: int, **fields: object) -> nn.Module:
    return builder(block)(Shape(input), **fields)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_stem():
    stem = build("stem", 3, 9, 8, channels=64)
    assert count(stem) == 1_856
    assert [type(layer) for layer in stem] == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU]
    assert stem(torch.randn(2, 3, 9, 8)).shape == (2, 64, 9, 8)


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


@pytest.mark.parametrize("stride", [1, 2])
def test_nothing_is_written_on_the_input(stride):
    block = build("residual", 4, 5, 5, channels=4, layers=2, stride=stride)
    for module, channels in ((block, 4), (build("stem", 3, 5, 5, channels=4), 3)):
        s = torch.randn(2, channels, 5, 5)
        before, version = s.clone(), s._version
        module(s)
        assert torch.equal(s, before) and s._version == version


@pytest.mark.parametrize(("block", "fields"), [("stem", {"channels": 4}), ("residual", {"channels": 4, "layers": 1})])
def test_only_images_are_taken(block, fields):
    with pytest.raises(SpecError, match=rf"block `{block}` .* \(12, 300\)"):
        build(block, 12, 300, **fields)
