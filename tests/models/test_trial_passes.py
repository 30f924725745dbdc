"""What passes of noise tell of a user's blocks and of imported models."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from alray.models.network import Network
from alray.models.trial_passes import gives_probabilities
from alray.runtime.workload import Workload

TEXT = """\
name: tried
data: {source: synthetic, shape: [6], classes: 4}
model: %s
method: backpropagation
run: {epochs: 1}
"""
CODE = """\
import itertools
import torch
from torch import nn
from torch.nn import functional

calls = itertools.count()


class Block(nn.Module):
    def __init__(self, input):
        super().__init__()
        self.l = nn.Linear(input.elements, 8)
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, s, mask=None):
        return torch.tanh(self.mixed(self.l(s)))


class Norm(Block):
    def __init__(self, input):
        super().__init__(input)
        self.norm = nn.BatchNorm1d(8)

    def mixed(self, s):
        return self.norm(s)


class OwnMean(Block):
    def mixed(self, s):
        return s - s.mean(0)


class Functional(Block):
    def mixed(self, s):
        return functional.batch_norm(s, None, None, training=self.training)


class Pairs(Block):
    def mixed(self, s):
        return s + 0.1 * torch.softmax(s @ s.T, 1) @ s


class Halves(Block):
    def mixed(self, s):
        return torch.cat([half - half.mean(0) for half in s.chunk(2)])


class Running(Block):
    def mixed(self, s):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * s.detach().mean(0)
        return s - self.mean


class Plain(Block):
    def mixed(self, s):
        return s


class Frozen(Norm):
    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self


class Dropped(Block):
    def mixed(self, s):
        return functional.dropout(s, 0.5, training=self.training) + torch.rand(len(s), 1)


class Rows(Block):
    def mixed(self, s):
        return functional.layer_norm(s, (8,)) - s.mean(1, keepdim=True)


class Counting(Block):  # whatever it gets, it gives something else in each pass
    def mixed(self, s):
        return s.relu() if s.is_meta else s + next(calls)


class Choosy(Block):
    def mixed(self, s):
        if not s.is_meta and len(s) != 64:
            raise ValueError("mini-batches of 64 alone")
        return s


class ChoosyNorm(Choosy, Norm):
    def mixed(self, s):
        return Choosy.mixed(self, Norm.mixed(self, s))


def model(*last):
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4), *last)


def last_norm():
    return model(nn.BatchNorm1d(4))


def softmax():
    return model(nn.Softmax(1))


class Shares(nn.Module):
    def forward(self, s):
        return s.exp() / s.exp().sum(1, keepdim=True)


def own_softmax():
    return model(Shares())


def sigmoid():
    return model(nn.Sigmoid())


def log_softmax():
    return model(nn.LogSoftmax(1))


class Four(nn.Module):
    def __init__(self, input):
        super().__init__()
        self.l = nn.Linear(8, 4)

    def forward(self, s, mask=None):
        return torch.softmax(self.l(s), 1)
"""


def text_of(name: str) -> str:
    if name.islower():
        return f"{{from: 'python:own_blocks.{name}', components: 2}}"
    return f"{{components: [{{block: linear, width: 8}}, {{block: 'python:own_blocks.{name}'}}]}}"


@pytest.fixture
def made(make_network: Callable[..., Network]) -> Callable[..., Network]:
    """The network of a block of alray's and one of a user's, or of a model, by its name."""

    return lambda name, *overrides: make_network(*overrides, sample=(6,), text=TEXT % text_of(name), code=CODE)


@pytest.fixture
def made_workload(make_workload: Callable[..., Workload]) -> Callable[..., Workload]:
    """The same with data."""
    return lambda name, *overrides: make_workload(*overrides, text=TEXT % text_of(name), code=CODE)


@pytest.mark.parametrize(
    ("name", "mixes"),
    [
        *((name, True) for name in ("Norm", "OwnMean", "Functional", "Pairs", "Halves", "Running", "ChoosyNorm")),
        *((name, False) for name in ("Plain", "Frozen", "Dropped", "Rows", "Choosy", "Counting", "softmax")),
        ("last_norm", True),
    ],
)
def test_a_component_that_computes_samples_from_each_other_is_found(made, name: str, mixes: bool) -> None:
    assert made(name).mixes_samples == [False, mixes]


@pytest.mark.parametrize("kind", ["backpropagation", "decoupled_greedy"])
@pytest.mark.parametrize(
    ("name", "task", "gives"),
    [
        ("softmax", "classification", True),
        ("own_softmax", "classification", True),
        ("sigmoid", "classification", False),
        ("log_softmax", "classification", False),
        ("last_norm", "classification", False),
        ("Four", "classification", True),
        ("Plain", "classification", False),
        ("sigmoid", "multi_label", True),
        ("softmax", "multi_label", True),
        ("last_norm", "multi_label", False),
        ("sigmoid", "regression", False),
    ],
)
def test_a_network_that_gives_probabilities_is_found(made, kind: str, name: str, task: str, gives: bool) -> None:
    if kind == "decoupled_greedy" and name.islower():
        kind = "{kind: decoupled_greedy, head: model}"
    assert gives_probabilities(made(name, f"method={kind}", f"task={task}")) is gives


@pytest.mark.parametrize("synchronised", [False, True])
@pytest.mark.parametrize(
    ("name", "told"),
    [("Plain", ""), ("Norm", "batch normalisation computes its statistics"), ("OwnMean", "from the others of its")],
)
def test_replicas_tell_it(made_workload, name: str, told: str, synchronised: bool) -> None:
    """That a layer of torch takes its statistics over all of them helps no other code."""
    notes = made_workload(name, f"replicas={{count: 2, sync_batch_norm: {synchronised}}}").notes
    assert any(told in line for line in notes if "replicas do not train exactly" in line) == (
        name == "OwnMean" or (name == "Norm" and not synchronised)
    )
