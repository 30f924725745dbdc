"""What crosses a component boundary: stopped, row-major, and safe from a neighbour that writes on it."""

from __future__ import annotations

import pytest
import torch

from alray.models.encoder import default_strides, pass_on, row_major
from alray.runtime.stage.assemble import work_of

from ..mini_batches import backward, forward, forward_step

BLOCKS = """\
import torch
from torch import nn


class Permuted(nn.Module):
    def __init__(self, input, width):
        super().__init__()
        self.conv = nn.Conv2d(input[0], width, input[1])

    def forward(self, s, mask=None):
        return self.conv(s).clone(memory_format=torch.channels_last)


class Affine(nn.Module):
    def __init__(self, input, inplace):
        super().__init__()
        self.inplace = inplace
        self.conv = nn.Conv2d(input[0], 3, 1)

    def forward(self, s, mask=None):
        s = s.mul_(2.0).relu_() if self.inplace else s.mul(2.0).relu()
        return self.conv(s)
"""


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(4, 3, 1, 1).clone(memory_format=torch.channels_last),
        torch.randn(4, 3, 5, 6).contiguous(memory_format=torch.channels_last),
        torch.randn(6, 4).t(),
        torch.randn(4, 1).expand(4, 7),
        torch.randn(4, 9)[:, ::2],
        torch.empty(0, 3, 2).transpose(1, 2),
    ],
    ids=["channels_last 1x1", "channels_last", "transposed", "expanded", "sliced", "empty"],
)
def test_row_major_gives_the_values_in_default_strides(tensor):
    result = row_major(tensor)
    assert result.stride() == torch.empty(tensor.shape).stride() == default_strides(tensor.shape)
    assert torch.equal(result, tensor)


def test_channels_last_one_by_one_maps_are_why_contiguous_is_not_enough():
    tensor = torch.randn(4, 3, 1, 1).clone(memory_format=torch.channels_last)
    assert tensor.contiguous().stride() != row_major(tensor).stride()


def test_what_is_row_major_already_is_not_copied():
    tensor = torch.randn(4, 3, requires_grad=True)
    passed_on = pass_on(tensor)
    assert passed_on.data_ptr() == tensor.data_ptr() and not passed_on.requires_grad


def test_a_block_that_permutes_passes_on_default_strides(make_network):
    network = make_network(
        "model.components=[{block: 'python:own_blocks.Permuted', width: 6}, "
        "{block: 'python:own_blocks.Affine', inplace: false}]",
        code=BLOCKS,
    )
    component = network.component(0, "cpu")
    samples = torch.randn(8, 2, 8, 8)
    assert component.f.run({"s": samples}, 1)["s"].stride() == (6, 1, 6, 6)
    labels = torch.zeros(8, dtype=torch.int64)
    assert forward_step(component, {"s": samples, "labels": labels}, 1)["s"].stride() == (6, 1, 1, 1)
    assert component.infer({"s": samples}, 1)["s"].stride() == (6, 1, 1, 1)
    assert network.encoders[0].output == (6, 1, 1)


def test_a_neighbour_that_writes_on_its_input_leaves_the_loss_before_it_right(make_network):
    """Bit for bit the run of the same blocks without anything in place."""
    ends = []
    for inplace in ("true", "false"):
        network = make_network(
            "model.components=[{block: vgg, channels: [4]}, "
            f"{{block: 'python:own_blocks.Affine', inplace: {inplace}}}]",
            code=BLOCKS,
        )
        assert [link.writes_input for link in network.encoders] == [False, inplace == "true"]
        stage = work_of([network.component(index, "cpu") for index in range(2)])
        numbers = torch.Generator().manual_seed(0)
        losses = []
        for step in range(1, 4):
            s, labels = torch.randn(8, 2, 8, 8, generator=numbers), torch.randint(0, 4, (8,), generator=numbers)
            forward(stage, {"s": s, "labels": labels}, step)
            losses.append(backward(stage))
            stage.update(0.05, step=step)
        ends.append((losses, [component.weights() for component in stage.components]))
    assert ends[0][0] == ends[1][0]
    for mine, other in zip(ends[0][1], ends[1][1], strict=True):
        assert all(torch.equal(mine[name], other[name]) for name in mine)


def test_backpropagation_too_is_right_behind_a_block_that_writes_on_its_input(make_network):
    weights = []
    for inplace in ("true", "false"):
        network = make_network(
            "model.components=[{block: vgg, channels: [4]}, "
            f"{{block: 'python:own_blocks.Affine', inplace: {inplace}}}]",
            "method={kind: backpropagation}",
            code=BLOCKS,
        )
        stage = work_of([network.component(index, "cpu") for index in range(2)])
        s, labels = torch.randn(8, 2, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 4
        forward(stage, {"s": s, "labels": labels}, 1)
        backward(stage)
        stage.update(0.05, step=1)
        weights.append([component.weights() for component in stage.components])
    for mine, other in zip(*weights, strict=True):
        assert all(torch.equal(mine[name], other[name]) for name in mine)
