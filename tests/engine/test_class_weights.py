"""Weights of classes weigh the mean of a mini-batch, as torch's loss does, on every layout and in the same bits."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
import torch
from torch.nn import functional

from alray.config.loading.load import load_spec
from alray.config.user_code import UserCode
from alray.core.errors import DataError, SpecError
from alray.data.batches import TrainBatches
from alray.inference.network import TrainedNetwork
from alray.runtime.workload import Workload

from .conftest import Workshop
from .test_same_bits import same

SPEC = """
name: weighted
seed: 3
data: {source: synthetic, shape: [6], classes: 3, samples: 100, batch_size: 16, validation_fraction: 0.2}
task: {kind: classification, class_weights: [1, 7, 0.5]}
model: {components: [{block: mlp, widths: [8]}, {block: mlp, widths: [8]}, {block: mlp, widths: [8]}]}
method: backpropagation
optimizer: {kind: sgd, lr: 0.1}
pipeline: {costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost, *cost], stages: 1}
run: {steps: 8, evaluate_every: 4 steps, checkpoint: {every: 4 steps}, precision: float64}
"""
ONE_F_ONE_B = ("pipeline.schedule=1f1b", "pipeline.micro_batches=4")


@pytest.fixture
def weighted(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path, SPEC)


def weights_of(folder: Path) -> list[torch.Tensor]:
    components = TrainedNetwork(folder, allow_code=False).components
    return [value for component in components for value in component.weights().values()]


def by_torch(workshop: Workshop, *overrides: str) -> list[torch.Tensor]:
    """The weights of a plain loop with torch's weighted cross-entropy."""
    spec = load_spec(workshop.spec, overrides).spec
    workload = Workload.open(spec, UserCode(workshop.folder))
    components = [workload.network.component(index, "cpu") for index in range(3)]
    optimizer = torch.optim.SGD([each for component in components for each in component.parameters()], lr=0.1)
    weight = torch.tensor([1, 7, 0.5], dtype=torch.float64)
    with TrainBatches(workload.data, seed=3, start_step=0, end_step=8, workers=0) as batches:
        for batch in batches:
            labels, s = batch.labels[:, 0].long(), batch.samples.double()
            losses = []
            for component in components:
                if workload.network.method.local_losses:
                    s = s.detach()
                s = component.f.body(s)
                if component.turn is not None:
                    losses.append(functional.cross_entropy(component.turn(s), labels, weight=weight))
            optimizer.zero_grad()
            sum(losses).backward()
            optimizer.step()
    return [value for component in components for value in component.weights().values()]


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("pipeline.stages=3", *ONE_F_ONE_B),
        ("replicas={count: 2, shares: [5, 11]}",),
        ("method=decoupled_greedy", "pipeline.stages=2"),
        pytest.param(("method={kind: mono_forward}",), marks=pytest.mark.full),
        pytest.param(("method={kind: local_error_signals, loss: pred}",), marks=pytest.mark.full),
    ],
    ids=["whole", "micro-batches", "replicas", "greedy", "mono_forward", "pred"],
)
def test_the_loss_is_that_of_torch(weighted, overrides) -> None:
    run = weighted.run(*overrides)
    assert run.error is None
    for found, wanted in zip(weights_of(weighted.folder / "run"), by_torch(weighted, *overrides), strict=True):
        assert torch.allclose(found, wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("method", [ONE_F_ONE_B, ("method=decoupled_greedy",)], ids=["bp", "dgl"])
def test_two_stages_and_a_resume_on_one_give_the_same_bits(weighted, method) -> None:
    whole = weighted.run(*method, "run.precision=float32", name="whole")
    weighted.run(*method, "run.precision=float32", "pipeline.stages=2", "run.steps=4")
    same(weighted.resume("run.steps=8", "pipeline.stages=1"), whole)


def test_balanced_weights_are_those_of_scikit_learn(weighted) -> None:
    from sklearn.utils.class_weight import compute_class_weight

    spec = load_spec(weighted.spec, ["task.class_weights=balanced"]).spec
    data = Workload.open(spec, UserCode(weighted.folder)).data
    labels = torch.cat([data.train.take([index])[1] for index in range(len(data.train))]).numpy()
    wanted = compute_class_weight("balanced", classes=numpy.arange(3), y=labels)
    assert data.class_weights.tolist() == pytest.approx(wanted.tolist(), rel=1e-12)


@pytest.mark.parametrize(
    ("key", "overrides"),
    [
        ("task.class_weights", ["method={kind: associated_learning}"]),
        ("task.class_weights", ["method={kind: supervised_contrastive}"]),
        ("method.loss", ["method={kind: local_error_signals}"]),
        ("task.class_weights", ["data.mix={mixup: 0.4}"]),
        ("task.class_weights", ["task.class_weights=equal"]),
        ("task.class_weights[1]", ["task.class_weights=[1, 0, 1]"]),
    ],
)
def test_what_has_no_weights_is_refused(weighted, key, overrides) -> None:
    with pytest.raises(SpecError) as error:
        load_spec(weighted.spec, overrides)
    assert [problem.key for problem in error.value.problems] == [key]


@pytest.mark.parametrize("weights", ["[1, 2]", "{class_9: 2}"])
def test_a_weight_of_no_class_is_refused(weighted, weights) -> None:
    spec = load_spec(weighted.spec, [f"task.class_weights={weights}"]).spec
    with pytest.raises(DataError, match="class") as error:
        Workload.open(spec, UserCode(weighted.folder))
    assert error.value.problems[0].key == "task.class_weights"


OWN = """
import torch
from alray.parts.methods.decoupled_greedy.method import GreedyMethod


class Plain(GreedyMethod):
    def __init__(self, task):
        super().__init__(task, head="auto", label_smoothing=0.0)


class Weighing(Plain):
    weighs_classes = True


class Lists:
    classes = ("a", "b", "c")

    def open(self, split):
        return [(torch.full((6,), float(number)), number % 3) for number in range(40)]
"""


def opened(workshop: Workshop, *overrides: str) -> Workload:
    (workshop.folder / "own.py").write_text(OWN)
    return Workload.open(load_spec(workshop.spec, overrides).spec, UserCode(workshop.folder))


def test_a_method_of_one_s_own_says_that_it_takes_the_loss_of_the_task(weighted) -> None:
    assert opened(weighted, "method.kind=python:own.Weighing").network.labels(0)["labels"] == (2,)
    with pytest.raises(SpecError, match="weights of classes") as error:
        opened(weighted, "method.kind=python:own.Plain")
    assert error.value.problems[0].key == "task.class_weights"


def test_classes_that_only_reading_tells(weighted) -> None:
    """They are weighed by one replica, which reads whole mini-batches, and cannot be counted."""
    source = "data={source: 'python:own.Lists', batch_size: 8}"
    with TrainBatches(opened(weighted, source).data, seed=3, start_step=0, end_step=1, workers=0) as batches:
        classes, weights = next(batches).labels.unbind(1)
    wanted = torch.tensor([1, 7, 0.5], dtype=torch.float64)[classes.long()]
    assert torch.allclose(weights, wanted / wanted.mean(), rtol=0, atol=1e-12)
    for more in ("replicas.count=2", "task.class_weights=balanced"):
        with pytest.raises(DataError, match="before they are read") as error:
            opened(weighted, source, more)
        assert error.value.problems[0].key == "task.class_weights"
