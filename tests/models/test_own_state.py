"""The state of a user's blocks: what no checkpoint would hold, and what two components share, is refused by name."""

from __future__ import annotations

import pytest

from alray.core.errors import SpecError
from alray.data.batches import TrainBatches
from alray.runtime.probe.measure import Surroundings, probe_costs

from ..conftest import OWN_BLOCKS

BUFFERS = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, input, persistent=False):
        super().__init__()
        self.conv = nn.Conv2d(input[0], 4, 1)
        self.inner = nn.Module()
        self.inner.register_buffer("seen", torch.zeros(1), persistent=persistent)
        self.inner.register_buffer("cache", None, persistent=False)
        self.register_buffer("fixed", torch.ones(1), persistent=False)

    def forward(self, s, mask=None):
        if self.inner.cache is None:
            self.inner.cache = torch.ones(s.shape[1:], device=s.device)
        self.see(s)
        return self.conv(s * self.inner.cache * self.fixed) + self.inner.seen


class Added(Block):
    def see(self, s):
        self.inner.seen += 1


class Replaced(Block):
    def see(self, s):
        with torch.no_grad():
            self.inner.seen = 0.9 * self.inner.seen + 0.1 * s.mean()


class Hidden(Block):
    def see(self, s):
        self.inner.seen.data.add_(1)


class Cached(Block):
    def see(self, s):
        pass
"""
ONE = "model.components=[{block: vgg, channels: [4]}, {block: 'python:own_blocks.%s'}]"
SHARED = """\
import torch
from torch import nn

LAYER = nn.Linear(4, 4)
NORM = nn.BatchNorm2d(4, affine=False)
RELU = nn.ReLU()


class Block(nn.Module):
    def __init__(self, input):
        super().__init__()
        self.conv = nn.Conv2d(input[0], 4, 1)
        self.share()

    def forward(self, s, mask=None):
        return self.conv(s)


class Module(Block):
    def share(self):
        self.layer = LAYER


class Parameter(Block):
    def share(self):
        self.scale = LAYER.weight


class Norm(Block):
    def share(self):
        self.norm = NORM


class Stateless(Block):
    def share(self):
        self.relu = RELU
"""


def named(name: str) -> str:
    return ONE % name


@pytest.mark.parametrize("name", ["Added", "Replaced"])
def test_an_unsaved_buffer_that_changes_is_refused_when_the_network_is_drawn(make_network, name):
    with pytest.raises(SpecError) as caught:
        make_network(named(name), code=BUFFERS)
    (problem,) = caught.value.problems
    assert problem.key == "model.components[1]"
    assert "`inner.seen`" in problem.message
    make_network(named(name).replace("'}", "', persistent: true}"))


def test_a_change_that_torch_does_not_count_is_found_by_the_probe(make_workload, monkeypatch):
    monkeypatch.setattr("alray.runtime.probe.timing.PROBE_S", 0.0)

    def probe(name: str) -> None:
        workload = make_workload(named(name), code=BUFFERS)
        with TrainBatches(workload.data, seed=0, start_step=0, end_step=1, workers=0) as batches:
            probe_costs(workload.network, next(batches), Surroundings(workload.device))

    probe("Cached")
    with pytest.raises(SpecError, match=r"the buffer `inner.seen` changes in training"):
        probe("Hidden")


@pytest.mark.parametrize(
    ("name", "what"),
    [("Module", "the module `layer`"), ("Parameter", "the parameter `scale`"), ("Norm", "the module `norm`")],
)
def test_components_that_share_something_are_named(make_network, name, what):
    blocks = f"model.components=[{{block: vgg, channels: [4]}}, {{block: 'python:own_blocks.{name}', repeat: 2}}]"
    with pytest.raises(SpecError) as caught:
        make_network(blocks, code=SHARED)
    (problem,) = caught.value.problems
    assert (problem.key, problem.message) == ("model.components[2]", f"components 1 and 2 share {what}")


def test_a_module_without_state_may_be_shared(make_network):
    network = make_network("model.components=[{block: 'python:own_blocks.Stateless', repeat: 2}]", code=SHARED)
    assert [network.component(index, "cpu").index for index in (0, 1, 0)] == [0, 1, 0]


EXTRA = """\
import torch
from torch import nn


class Counting(nn.Module):
    calls = {"forward": 0}

    def get_extra_state(self):
        return self.calls

    def set_extra_state(self, state):
        self.calls = state

    def forward(self, s, mask=None):
        return s


class Block(nn.Sequential):
    def __init__(self, input):
        super().__init__(Counting(), nn.Conv2d(input[0], 4, 1))

    def forward(self, s, mask=None):
        return super().forward(s)


class Tensor(Block):
    def __init__(self, input):
        super().__init__(input)
        self[0].calls = torch.zeros(3)


class Model(nn.Sequential):
    def __init__(self):
        super().__init__(Counting(), nn.Conv2d(2, 4, 1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 4))
"""


LAZY = """
from torch import nn
def Block(given): return nn.Sequential(nn.Flatten(), nn.LazyLinear(4))
def Model(): return nn.Sequential(nn.Flatten(), nn.LazyLinear(8), nn.ReLU(), nn.Linear(8, 4))
"""


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ("model.components=[{block: vgg, channels: [4]}, {block: 'python:own_blocks.Block'}]", "model.components[1]"),
        ("model={from: 'python:own_blocks.Model', components: 1}", "model.from"),
    ],
)
@pytest.mark.parametrize(
    ("code", "said"),
    [(EXTRA, r"has `0._extra_state`, a dict and no tensor"), (LAZY, r"lazy layer, and has no shape yet")],
)
def test_a_state_that_no_checkpoint_would_hold_is_refused(make_network, model, key, code, said):
    with pytest.raises(SpecError, match=said) as caught:
        make_network(model, code=code)
    (problem,) = caught.value.problems
    assert problem.key == key


def test_a_state_of_a_tensor_is_saved(make_network):
    network = make_network(ONE % "Tensor", code=EXTRA)
    assert network.component(1, "cpu").weights()["f.0._extra_state"].shape == (3,)


METHOD = """\
from alray.models.component import LocalComponent
from alray.models.method import Method
from alray.models.readout import classifier


class OneHead(Method):
    head = None

    def component(self, index, f, facts, make):
        def build():
            return classifier(facts.output, classes=4, pool=1, hidden=None, activation="relu")

        self.head = self.head or make("head", build)
        component = Component(index, f)
        component.head = self.head
        return component

    def ends_route(self, index):
        return True


class Component(LocalComponent):
    @property
    def turn(self):
        return self.head

    def local_losses(self, encoded, incoming):
        raise AssertionError
"""


def test_a_method_whose_components_share_a_part(make_network):
    network = make_network(
        "model.components=[{block: vgg, channels: [4], repeat: 2}]",
        "method={kind: 'python:own_blocks.OneHead'}",
        code=METHOD,
    )
    network.component(0, "cpu")
    with pytest.raises(SpecError, match=r"components 0 and 1 share the module `head"):
        network.component(1, "cpu")


COUNTED_METHOD = """

class Counted(OneHead):
    def component(self, index, f, facts, make):
        component = super().component(index, f, facts, make)
        component.counting = Counting()
        return component
"""


def test_a_method_whose_component_has_a_state_that_is_no_tensor(make_network):
    network = make_network("method={kind: 'python:own_blocks.Counted'}", code=EXTRA + METHOD + COUNTED_METHOD)
    with pytest.raises(SpecError, match=r"component 0 has `counting._extra_state`, a dict and no tensor"):
        network.component(0, "cpu")


COMPLEX = """
import torch
from torch import nn


class Phase(nn.Module):
    def __init__(self, input, buffer=False):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(input.elements))
        turn = torch.full((input.elements,), 1.0 + 1.0j)
        if buffer:
            self.register_buffer("turn", turn, persistent=False)
        else:
            self.turn = nn.Parameter(turn)

    def forward(self, s, mask=None):
        return (s.flatten(1) * self.scale * self.turn).abs()
"""


@pytest.mark.parametrize("buffer", ["false", "true"])
def test_complex_numbers_are_refused(make_network, buffer: str) -> None:
    """The type of the run would leave their real parts."""
    block = f"{{block: 'python:{OWN_BLOCKS[:-3]}.Phase', buffer: {buffer}}}"
    with pytest.raises(SpecError, match=r"`turn` of block .* is complex") as caught:
        make_network("method=backpropagation", f"model.components=[{block}]", code=COMPLEX)
    assert caught.value.problems[0].key == "model.components[0]"
