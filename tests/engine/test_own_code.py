"""A user's code that draws random numbers gives the same bits everywhere; what it raises names it."""

from __future__ import annotations

import random

import numpy
import pytest
import torch

from alray.core.errors import UserCodeError

from ..backward_threads import of_the_calling_thread
from ..pairwise import first_alone
from .conftest import Workshop
from .test_pipelines import workshop_in
from .test_same_bits import same

DRAWING = '''
"""A block and a source that draw from every global generator, wherever they can."""

import random

import numpy
import torch
from torch import nn

from alray.models.component import LocalComponent, read
from alray.models.method import Method
from alray.models.readout import classifier


def some(like):
    """Between 0.9 and 1.2."""
    drawn = 0.1 * torch.rand(like.shape, device=like.device)
    return 0.9 + drawn + 0.1 * float(numpy.random.rand()) + 0.1 * random.random()


class NoisyGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, s):
        return s.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * some(gradient)


class Noisy(nn.Module):
    def __init__(self, input, width):
        super().__init__()
        self.conv = nn.Conv2d(input[0], width, 1)
        self.start = nn.Parameter(torch.full((1,), random.random() + float(numpy.random.rand())))

    def forward(self, s, mask=None):
        s = NoisyGradient.apply(self.conv(s) * self.start)
        return torch.relu(s * some(s))


class Samples:
    classes = ("a", "b", "c", "d")

    def __init__(self):
        self.shift = float(numpy.random.rand())

    def open(self, split):
        return Set(self.shift + random.random(), 150 if split == "train" else 20)


class Set:
    def __init__(self, shift, count):
        self.shift, self.count = shift, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        label = index % 4
        return label * some(torch.empty(2, 8, 8)) + self.shift, label


class Mixed(Method):
    """A classifier behind every component, whose losses and gradients are noisy."""

    def component(self, index, f, facts, make):
        size = {"classes": self.task.classes, "pool": 4, "hidden": None, "activation": "relu"}
        head = make("head", lambda: classifier(facts.output, **size, pooling=facts.pooling))
        return MixedComponent(index, f, head, self.task)

    def ends_route(self, index):
        return True


class MixedComponent(LocalComponent):
    def __init__(self, index, f, head, task):
        super().__init__(index, f)
        self.head = head
        self.train_with(task.optimizer, encoder=(f, head))

    @property
    def turn(self):
        return self.head

    def local_losses(self, encoded, incoming):
        scores = NoisyGradient.apply(read(self.head, encoded))
        loss = nn.functional.cross_entropy(scores * some(scores), incoming["labels"])
        return {"noisy": loss}, {"labels": incoming["labels"]}
'''
NOISY = (
    "data={source: 'python:drawing.Samples', batch_size: 16, validation_fraction: 0.2}",
    "model.components.1={block: 'python:drawing.Noisy', width: 8}",
    "model.components.2={block: 'python:drawing.Noisy', width: 6}",
)


@pytest.fixture
def drawing(workshop: Workshop) -> Workshop:
    (workshop.folder / "drawing.py").write_text(DRAWING)
    return workshop


def disturb(value: int) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Set the global generators to some state, and return it: a run must depend on none and leave it as it is."""
    torch.manual_seed(value)
    numpy.random.seed(value)
    random.seed(value)
    return state()


def state() -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    of_torch = hash(torch.random.get_rng_state().numpy().tobytes())
    return of_torch, tuple(numpy.random.get_state()[1].tolist()), random.getstate()[1]


@pytest.mark.full
@pytest.mark.parametrize(
    "method", first_alone(["'python:drawing.Mixed'", "associated_learning"]), ids=["own", "built in"]
)
def test_the_same_bits_however_it_is_cut_and_after_a_resume(drawing: Workshop, method: str) -> None:
    noisy = (*NOISY, f"method={{kind: {method}}}")
    before = disturb(1)
    whole = drawing.run(*noisy, "run.epochs=2", "pipeline.schedule=sequential", "pipeline.stages=1", name="whole")
    assert state() == before
    disturb(2)
    drawing.run(*noisy, "pipeline.partition=[1,1,2]", "run.epochs=1", name="resumed")
    disturb(3)
    same(drawing.resume("run.epochs=2", "pipeline.partition=[3,1]", name="resumed"), whole)


@pytest.mark.full
def test_backpropagation_draws_the_same_in_every_run_and_after_a_resume(drawing: Workshop) -> None:
    method = ("method={kind: backpropagation}", "pipeline.schedule=single", "pipeline.stages=1")
    disturb(1)
    whole = drawing.run(*NOISY, *method, "run.epochs=2", name="whole")
    disturb(2)
    drawing.run(*NOISY, *method, "run.epochs=1", name="again")
    same(drawing.resume("run.epochs=2", name="again"), whole)


@pytest.mark.full
def test_a_pipeline_draws_the_same_in_every_run(drawing: Workshop, processes: None) -> None:
    """Also where torch splits the backward pass in two."""
    method = ("method={kind: backpropagation}", "pipeline.schedule=zero_bubble", "pipeline.partition=[2,2]")
    overrides = (*NOISY, *method, "pipeline.micro_batch_norm=accept", "run.epochs=1")
    first = drawing.run(*overrides, inline=False, name="first")
    same(drawing.run(*overrides, inline=False, name="second"), first)


RAISING = '''
import torch


class Trouble(Exception):
    """A class of errors of the user."""


class Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx, s, block):
        ctx.block = block
        return s.clone()

    @staticmethod
    def backward(ctx, gradient):
        count_down(ctx.block, gradient)
        return gradient, None


def count_down(block, gradient):
    block.left -= gradient.device.type != "meta"
    if block.left == 0:
        raise Trouble("not today")


class ByFunction(torch.nn.Module):
    def __init__(self, input, calls):
        super().__init__()
        self.left = calls
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, s, mask=None):
        return Raises.apply(s * self.scale, self)


class ByHook(ByFunction):
    def forward(self, s, mask=None):
        s = s * self.scale
        if s.requires_grad:
            s.register_hook(lambda gradient: count_down(self, gradient))
        return s
'''
BP = ("method={kind: backpropagation}", "pipeline.micro_batch_norm=accept")
PIPELINES = [(*BP, f"pipeline.schedule={name}", "pipeline.partition=[2,2]") for name in ("1f1b", "zero_bubble")]


@of_the_calling_thread
@pytest.mark.few
@pytest.mark.parametrize(
    ("block", "overrides", "inline"),
    [
        ("ByFunction", ("pipeline.partition=[2,2]",), True),
        ("ByHook", ("pipeline.partition=[2,2]",), False),
        ("ByHook", (*BP, "pipeline.stages=1"), True),
        *[("ByFunction", overrides, False) for overrides in PIPELINES],
    ],
    ids=["local losses", "local losses, processes", "single", "1f1b", "zero_bubble"],
)
def test_a_block_that_raises_in_its_backward_pass_is_named(tmp_path, processes, block, overrides, inline) -> None:
    workshop = workshop_in(tmp_path)
    (tmp_path / "raising.py").write_text(RAISING)
    components = f"model.components.3={{block: 'python:raising.{block}', calls: 6}}"
    kind = () if "backpropagation" in overrides[0] else ("method={kind: decoupled_greedy}",)
    run = workshop.run(components, *kind, *overrides, inline=inline)
    assert run.summary.status == "failed"
    assert isinstance(run.error, UserCodeError)
    (problem,) = run.error.problems
    line = 1 + RAISING.splitlines().index('        raise Trouble("not today")')
    assert (problem.file, problem.line, problem.key) == (str(tmp_path / "raising.py"), line, "model.components[3]")
    assert problem.message.startswith(f"block `python:raising.{block}` raised Trouble in the backward pass")
    assert "not today" in problem.message
    assert problem.traceback is not None
    assert problem.traceback.splitlines()[1].strip().startswith(f'File "{tmp_path / "raising.py"}", line ')
    assert "not today" in next((tmp_path / "run" / "logs").glob(f"stage-{run.summary.stages - 1}.log")).read_text()
    assert len(run.summary.failures) == 1, "the same bits would raise it again: there is nothing to try anew"


OTHER = '''
import torch


class Other(torch.nn.Module):
    """Gives something else than on the meta device."""

    def __init__(self, input, gives):
        super().__init__()
        self.gives = gives

    def forward(self, s, mask=None):
        return s if s.is_meta else {"rows": s[1:], "type": s.double(), "shape": s[:, 1:], "list": [s]}[self.gives]
'''


@pytest.mark.parametrize(
    ("gives", "overrides"),
    [
        ("rows", ()),
        ("type", (*BP, "pipeline.stages=1")),
        pytest.param("shape", PIPELINES[0], marks=pytest.mark.full),
        pytest.param("list", (*BP, "pipeline.stages=1"), marks=pytest.mark.full),
    ],
)
def test_a_block_that_gives_something_else_in_a_run_is_named(workshop: Workshop, gives: str, overrides) -> None:
    """And not the component above, which fails by it. Costs are given, or it would go wrong when it is measured."""
    (workshop.folder / "other.py").write_text(OTHER)
    run = workshop.run(f"model.components.1={{block: 'python:other.Other', gives: {gives}}}", *overrides)
    (problem,) = run.error.problems
    line = 1 + OTHER.splitlines().index("    def forward(self, s, mask=None):")
    assert (problem.file, problem.line, problem.key) == (str(workshop.folder / "other.py"), line, "model.components[1]")
    assert problem.message.startswith("block `python:other.Other` gave `s` of ")


PUTTING = """
import torch
from torch import nn


class Putting(nn.Conv2d):
    def __init__(self, input, width):
        super().__init__(input[0], width, 1)

    def forward(self, s, mask=None):
        torch.zeros(4).put_(torch.tensor([0]), torch.ones(1))
        return super().forward(s)
"""


@pytest.mark.parametrize("costs", ["", "pipeline.costs=null"], ids=["in a stage", "in the probe"])
def test_an_operation_without_a_deterministic_algorithm_is_no_fault_of_its_code(workshop: Workshop, costs: str) -> None:
    """On a GPU they are many, as in torchvision's VGG; on a processor `put_` is one."""
    (workshop.folder / "putting.py").write_text(PUTTING)
    overrides = [
        "model.components.2={block: 'python:putting.Putting', width: 6}",
        "run.epochs=1",
        *filter(None, [costs]),
    ]
    if costs:
        with pytest.raises(UserCodeError) as caught:
            workshop.run(*overrides)
        error = caught.value
    else:
        error = workshop.run(*overrides).error
    (problem,) = error.problems
    assert "does not have a deterministic implementation" in problem.message
    assert problem.hint.startswith("set run.deterministic=false")
    assert workshop.run(*overrides, "run.deterministic=false", name="free").error is None


WITHOUT_WEIGHTS = """
from torch import nn


class Halved(nn.Module):
    def __init__(self, input):
        super().__init__()

    def forward(self, s, mask=None):
        return s / 2
"""
BY_2BW = ("method=backpropagation", "pipeline.schedule=2bw", "pipeline.micro_batches=4")
SELDOM = "replicas={count: 2, synchronise: {average_every: 3 steps, outer: {}, fragments: 2, delay: 1}}"


@pytest.mark.parametrize(
    "overrides",
    [
        BY_2BW,
        ("method=channel_goodness", SELDOM),
        ("method=channel_goodness",),
        ("method={kind: forward_forward, prediction: activities}",),
    ],
    ids=["2bw", "outer", "goodness", "two losses"],
)
def test_a_component_without_weights(workshop: Workshop, overrides: tuple[str, ...]) -> None:
    keys = (*with_one_without_weights(workshop), *overrides)
    same(workshop.run(*keys, "pipeline.stages=3", name="three"), workshop.run(*keys, name="one"))


def with_one_without_weights(workshop: Workshop) -> tuple[str, ...]:
    """Overrides for three components, of which the one in the middle has no weights."""
    (workshop.folder / "halving.py").write_text(WITHOUT_WEIGHTS)
    blocks = '[{block: linear, width: 8}, {block: "python:halving.Halved"}, {block: linear, width: 8}]'
    cost = "{forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}"
    costs = f"pipeline.costs=[{cost}, {cost}, {cost}]"
    return (f"model.components={blocks}", costs, "run.steps=7", "run.epochs=null")
