"""Blocks: the built-in one, a user's in each of its forms, and the errors of those that are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from alray.core.errors import SpecError
from alray.runtime.stage.assemble import work_of

from ..mini_batches import backward, forward

FORMS = """\
import time

import torch
from torch import nn


def function(input, *, width):
    return nn.Conv2d(input[0], width, 1)


class WithBuild:
    @staticmethod
    def build(input, *, width):
        return function(input, width=width)


class Itself(nn.Module):
    def __init__(self, input, width):
        super().__init__()
        self.conv = nn.Conv2d(input[0], width, 1)

    def forward(self, s, mask=None):
        return self.conv(s)


def nothing(input):
    return nn.Identity()


class Sleeps(nn.Module):
    def __init__(self, input, seconds):
        super().__init__()
        self.seconds = seconds

    def forward(self, s, mask=None):
        time.sleep(self.seconds)
        return s * 2
"""

WRONG = """\
import torch
from torch import nn


class Wrong(nn.Module):
    def __init__(self, input, how):
        super().__init__()
        self.how = how
        if how == "assertion in build":
            assert input[0] == 3, "three channels wanted"

    def forward(self, s, mask=None):
        if self.how == "dtype":
            return s.to(torch.float16)
        if self.how == "tuple":
            return s, s
        if self.how == "batch":
            return s.flatten(0, 1)
        if self.how == "scalar":
            return s.sum()
        if self.how == "channels":
            return nn.Conv2d(3, 5, 1)(s)
        if self.how == "matrix":
            return s @ torch.zeros(3, 3)
        assert self.how == "right", f"{self.how} is not right"
        return s


def no_module(input):
    return 3


number = 3
"""


def own(name: str, **fields: object) -> str:
    entry = ", ".join([f"block: 'python:own_blocks.{name}'", *(f"{key}: {value}" for key, value in fields.items())])
    return f"model.components=[{{{entry}}}]"


def complaint(make_network, override: str, code: str = WRONG) -> str:
    with pytest.raises(SpecError) as caught:
        make_network(override, code=code)
    return str(caught.value)


@pytest.mark.parametrize("form", ["function", "WithBuild", "Itself"])
def test_a_users_block_in_each_of_its_forms(make_network, form):
    network = make_network(own(form, width=3), code=FORMS)
    assert network.encoders[0].output == (3, 8, 8)
    out = network.component(0, "cpu").f.run({"s": torch.ones(2, 2, 8, 8)}, 1)["s"]
    assert out.shape == (2, 3, 8, 8) and out.requires_grad


@pytest.mark.few
@pytest.mark.parametrize("method", ["method.label_dim=5", "method={kind: backpropagation}"])
@pytest.mark.parametrize("block", [own("nothing"), own("Sleeps", seconds=0.001)])
def test_a_block_without_parameters_trains_by_both_methods(make_network, block, method):
    two = block.replace("}]", "}, {block: vgg, channels: [3]}]")
    network = make_network(two, method, "optimizer.clip_norm=1.0", code=FORMS)
    stage = work_of([network.component(index, "cpu") for index in range(2)])
    assert list(stage.components[0].f.parameters()) == []
    batch = {"s": torch.randn(8, 2, 8, 8), "labels": torch.arange(8) % 4}
    found = []
    for step in range(1, 9):
        forward(stage, batch, step)
        found.append(sum(float(loss) for losses in backward(stage).values() for loss in losses.values()))
        stage.update(0.02, step=step)
    assert found[-1] < found[0]
    stage.evaluation_mode(True)
    _, routes = stage.infer_up({"s": batch["s"]}, 8, 0)
    assert all(route.shape == (8, 4) for route in routes)


def test_vgg_shapes_and_layers(make_network):
    network = make_network(
        "model.components=[{block: vgg, channels: [4, 6], pool: true}, {block: vgg, channels: [5]}]", sample=(2, 9, 8)
    )
    assert [tuple(link.output) for link in network.encoders] == [(6, 4, 4), (5, 4, 4)]
    kinds = [type(layer) for layer in network.component(0, "cpu").f.body]
    assert kinds == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU] * 2 + [nn.MaxPool2d]
    assert not any(link.draws or link.writes_input for link in network.encoders)


def test_vgg_refuses_what_it_cannot_take(make_network):
    override = "model.components=[{block: vgg, channels: [4]}]"
    with pytest.raises(SpecError, match=r"^model.components\[0\]: block `vgg` .* \(7,\)"):
        make_network(override, sample=(7,))
    with pytest.raises(SpecError, match=r"^model.components\[0\]: block `vgg` .* 8 x 1"):
        make_network("model.components=[{block: vgg, channels: [4], pool: true}]", sample=(2, 8, 1))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("dtype", "gave values of torch.float16, the run computes in torch.float32; "),
        ("tuple", "gave tuple for a batch of 2; "),
        ("batch", "gave (4, 8, 8) for a batch of 2; "),
        ("scalar", "gave () for a batch of 2; "),
        ("assertion in build", "cannot be built on an input of (2, 8, 8): three channels wanted; "),
    ],
)
def test_what_is_wrong_with_a_block_is_said(make_network, how, message):
    expected = f"model.components[0]: block `python:own_blocks.Wrong` {message}"
    assert complaint(make_network, own("Wrong", how=how)).startswith(expected)


@pytest.mark.parametrize(
    ("how", "said", "code"),
    [
        ("wrong", "wrong is not right", "assert self.how"),
        ("channels", "channel", "nn.Conv2d(3, 5, 1)(s)"),
        ("matrix", "[3, 3]", "torch.zeros(3, 3)"),
    ],
)
def test_a_forward_pass_that_does_not_take_its_input_is_named_by_its_line(make_network, how, said, code):
    with pytest.raises(SpecError) as caught:
        make_network(own("Wrong", how=how), code=WRONG)
    (problem,) = caught.value.problems
    start = "block `python:own_blocks.Wrong` does not take an input of (2, 8, 8): "
    assert problem.message.startswith(start) and said in problem.message
    assert "`input`" in problem.hint and "meta device" in problem.hint
    assert (Path(problem.file).name, problem.key) == ("own_blocks.py", "model.components[0]")
    assert code in WRONG.splitlines()[problem.line - 1] and code in problem.traceback


def test_fields_that_the_block_does_not_take(make_network):
    told = complaint(make_network, own("Wrong", how="right", width=3))
    assert told.startswith("model.components[0]: block `python:own_blocks.Wrong` ")
    assert "unexpected keyword argument 'width'; " in told


def test_what_is_no_block_at_all(make_network):
    for name, noun in (("no_module", "torch.nn.Module"), ("number", "class"), ("Missing", "`own_blocks` has no")):
        told = complaint(make_network, own(name))
        assert told.startswith("model.components[0]: ") and f"`python:own_blocks.{name}`" in told
        assert noun in told, told
