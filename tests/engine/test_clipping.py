"""`clip_norm` with backpropagation: by the norm of the whole network's gradients, however the network is cut."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from alray.config.loading.load import load_spec
from alray.config.user_code import UserCode
from alray.data.batches import TrainBatches
from alray.inference.network import TrainedNetwork
from alray.models.component import read
from alray.orchestrate import Finished
from alray.runtime.workload import Workload

from ..pairwise import first_alone
from .conftest import Workshop
from .test_same_bits import same

pytestmark = pytest.mark.long

SPEC = """
name: clipping
seed: 3
data: {source: synthetic, shape: [2, 8, 8], classes: 4, samples: 150, batch_size: 16, validation_fraction: 0.2}
model: {from: "python:nets.Net", components: 4, freeze: [third]}
method: backpropagation
optimizer: {kind: sgd, lr: 0.1, momentum: 0.9, clip_norm: 0.02}
pipeline: {costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost, *cost, *cost]}
run: {steps: 8, evaluate_every: 3 steps, checkpoint: {every: 2 steps, keep: 50}}
"""
NETS = '''
from torch import nn


class Net(nn.Sequential):
    """Its gradients become shorter from the last layer to the first one; one layer is frozen."""

    def __init__(self):
        super().__init__()
        widths = {"first": (128, 24), "second": (24, 24), "third": (24, 12), "fourth": (12, 12), "last": (12, 4)}
        self.add_module("flat", nn.Flatten())
        for name, width in widths.items():
            self.add_module(name, nn.Linear(*width))
            if name != "last":
                self.add_module(f"{name}_bent", nn.Tanh())
'''
ORDER = "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n1F0,1F1,1I0,1F2,1W0,1B1,1F3,1B2,1B3\n"
IN_PARTS = ("pipeline.micro_batches=4",)


@pytest.fixture
def clipping(tmp_path: Path) -> Workshop:
    (tmp_path / "nets.py").write_text(NETS)
    (tmp_path / "order.csv").write_text(ORDER)
    return Workshop(tmp_path, SPEC)


def cut(components: int) -> tuple[str, ...]:
    cost = "{forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}"
    return f"model.components={components}", f"pipeline.costs=[{', '.join([cost] * components)}]"


def weights(run: Finished) -> list[torch.Tensor]:
    """Of the whole network, in its order, whatever its components are."""
    assert run.error is None, run.error
    trained = TrainedNetwork(Path(run.summary.run_dir), allow_code=True)
    return [value.detach() for component in trained.components for value in component.parameters()]


def test_it_is_that_of_torch(clipping: Workshop) -> None:
    keys = ("run.precision=float64", "optimizer.accumulate=2")
    run = clipping.run(*keys, *cut(3), "pipeline.schedule=naive", "pipeline.stages=3")
    workload = Workload.open(load_spec(clipping.spec, [*keys, *cut(1)]).spec, UserCode(clipping.folder))
    component = workload.network.component(0, "cpu")
    parameters = list(component.parameters())
    optimizer = torch.optim.SGD([each for each in parameters if each.requires_grad], lr=0.1, momentum=0.9)
    norms = []
    with TrainBatches(workload.data, seed=3, start_step=0, end_step=8, workers=0) as batches:
        for number, batch in enumerate(batches, start=1):
            scores = read(component.turn, component.f.run({"s": batch.samples.double()}))
            (functional.cross_entropy(scores, batch.labels) / 2).backward()
            if number % 2 == 0:
                norms.append(float(nn.utils.clip_grad_norm_(parameters, 0.02)))
                optimizer.step()
                optimizer.zero_grad()
    assert min(norms) > 0.02
    for found, wanted in zip(weights(run), parameters, strict=True):
        torch.testing.assert_close(found.double(), wanted.detach(), rtol=0, atol=1e-12)


def test_it_does_not_depend_on_the_components(clipping: Workshop) -> None:
    one, *others = [weights(clipping.run(*cut(number), name=f"in-{number}")) for number in (1, 2, 3, 4)]
    for other in others:
        assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))


LAYOUTS = {
    "gpipe": ("pipeline.schedule=gpipe", "pipeline.stages=3", *IN_PARTS),
    "one stage": ("pipeline.schedule=interleaved_1f1b", "pipeline.virtual_stages=4", *IN_PARTS),
    "zb_v": ("pipeline.schedule=zb_v", "pipeline.stages=2", *IN_PARTS),
    "1f1b": ("pipeline.schedule=1f1b", "pipeline.stages=4", *IN_PARTS),
    "recomputed": ("pipeline.schedule=1f1b", "pipeline.stages=2", "pipeline.activation_checkpointing=true", *IN_PARTS),
    "interleaved_1f1b": ("pipeline.schedule=interleaved_1f1b", "pipeline.stages=2", *IN_PARTS),
    "zero_bubble": ("pipeline.schedule=zero_bubble", "pipeline.stages=4", *IN_PARTS),
    "dualpipe_v": ("pipeline.schedule=dualpipe_v", "pipeline.stages=2", *IN_PARTS),
    "order.csv": ("pipeline.schedule=order.csv", "pipeline.partition=[1,3]"),
}
"""Of four micro-batches, whose gradients all come to the same sums."""


@pytest.mark.parametrize("layout", first_alone(LAYOUTS, first=2))
def test_it_has_the_same_bits_in_every_pipeline(clipping: Workshop, processes: None, layout: str) -> None:
    one = clipping.run("pipeline.schedule=gpipe", "pipeline.stages=1", *IN_PARTS, name="one")
    same(clipping.run(*LAYOUTS[layout], name="inline"), one)
    same(clipping.run(*LAYOUTS[layout], inline=False, name="processes"), one)


@pytest.mark.full
@pytest.mark.parametrize(
    "keys",
    [
        ("pipeline.schedule=gpipe", *IN_PARTS, "optimizer.accumulate=2"),
        ("pipeline.schedule=2bw", *IN_PARTS),
        ("pipeline.schedule=gpipe", *IN_PARTS, "replicas.count=2"),
        ("pipeline.schedule=naive", "optimizer={kind: muon, lr: 0.01, clip_norm: 0.02}"),
    ],
    ids=["accumulated", "late", "replicas", "muon"],
)
def test_a_resume_on_other_stages_has_the_same_bits(clipping: Workshop, processes: None, keys) -> None:
    """With `accumulate` the checkpoint lies between two updates."""
    one = clipping.run(*keys, "pipeline.stages=1", name="one")
    clipping.run(*keys, "run.steps=5", "pipeline.stages=2", inline=False)
    same(clipping.resume("run.steps=8", "pipeline.stages=3"), one)


@pytest.mark.full
def test_replicas_clip_their_average(clipping: Workshop, processes: None) -> None:
    """As DDP does, and one process on the whole mini-batch."""
    keys, naive = ("run.precision=float64", "replicas.count=2"), "pipeline.schedule=naive"
    one = weights(clipping.run("run.precision=float64", "pipeline.stages=1", name="one"))
    runs = [
        clipping.run(*keys, naive, "pipeline.stages=3", name="inline"),
        clipping.run(*keys, naive, "pipeline.stages=2", inline=False, name="processes"),
        clipping.run(*keys, "replicas.engine=ray_train", "pipeline.stages=1", inline=False, name="ddp"),
    ]
    for run in runs:
        for found, wanted in zip(weights(run), one, strict=True):
            torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
