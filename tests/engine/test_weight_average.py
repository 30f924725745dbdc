"""The moving average of the weights is what torch's is; it is evaluated and kept, and training goes on beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from alray.config.loading.load import load_spec
from alray.config.user_code import UserCode
from alray.core.errors import SpecError
from alray.data.batches import TrainBatches
from alray.inference.network import TrainedNetwork
from alray.inference.requests import evaluate
from alray.models.weight_average import WeightAverage
from alray.runtime.probe.estimate import estimate_costs
from alray.runtime.workload import Workload

from .conftest import Workshop
from .test_same_bits import same

SPEC = """
name: averaged
seed: 3
data: {source: synthetic, shape: [2, 6, 6], classes: 3, samples: 100, batch_size: 16, validation_fraction: 0.2}
model: {components: [{block: vgg, channels: [4]}, {block: vgg, channels: [4], pool: true}]}
method: decoupled_greedy
optimizer: {kind: sgd, lr: 0.1, ema_decay: 0.8}
pipeline: {costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost], stages: 1}
run: {steps: 8, evaluate_every: 2 steps, checkpoint: {every: 2 steps, keep: 50}}
"""
METHODS = {
    "al": ("method={kind: associated_learning, label_dim: 8}", "optimizer={kind: adam, ema_decay: 0.8}"),
    "bp": ("method=backpropagation", "pipeline.schedule=naive", "optimizer.momentum=0.9", "optimizer.accumulate=3"),
    "2bw": ("method=backpropagation", "pipeline={schedule: 2bw, micro_batches: 2, micro_batch_norm: accept}"),
}


@pytest.fixture
def averaging(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path, SPEC)


def test_a_weight_that_is_frozen_during_the_run_stays_in_the_average() -> None:
    """A checkpoint has all weights that the average began with."""
    module = nn.Linear(2, 2)
    average = WeightAverage(module, 0.5)
    average.update()
    module.weight.requires_grad_(False)
    average.update()
    assert set(average.trained()) == {"weight", "bias"}


def test_it_is_that_of_torch(averaging) -> None:
    overrides = ("run.precision=float64",)
    averaging.run(*overrides)
    workload = Workload.open(load_spec(averaging.spec, overrides).spec, UserCode(averaging.folder))
    components = nn.ModuleList(workload.network.component(index, "cpu") for index in range(2))
    average = AveragedModel(components, multi_avg_fn=get_ema_multi_avg_fn(0.8), use_buffers=True)
    optimizer = torch.optim.SGD(components.parameters(), lr=0.1)
    with TrainBatches(workload.data, seed=3, start_step=0, end_step=8, workers=0) as batches:
        for batch in batches:
            s, total = batch.samples.double(), torch.zeros(())
            for component in components:
                s = component.f.body(s.detach())
                total = total + functional.cross_entropy(component.head(s), batch.labels)
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            average.update_parameters(components)
    for found, wanted, own in zip(
        TrainedNetwork(averaging.folder / "run", allow_code=False).components,
        average.module,
        components,
        strict=True,
    ):
        averages = {name: value for name, value in wanted.weights().items() if value.is_floating_point()}
        for name, value in averages.items():
            assert torch.allclose(found.weights()[name].double(), value.double(), rtol=0, atol=1e-10), name
        assert not torch.equal(found.weights()["f.0.weight"], own.weights()["f.0.weight"])


@pytest.mark.parametrize("method", ["al", *(pytest.param(name, marks=pytest.mark.full) for name in ("bp", "2bw"))])
def test_two_stages_and_a_resume_on_one_give_the_same_bits(averaging, method) -> None:
    """The checkpoint that the run continues from lies between two updates of `bp`."""
    keys = METHODS[method]
    whole = averaging.run(*keys, *(["pipeline.stages=2"] if method == "2bw" else []), name="whole")
    averaging.run(*keys, "pipeline.stages=2", "run.steps=4")
    same(averaging.resume("run.steps=8", *([] if method == "2bw" else ["pipeline.stages=1"])), whole)


def test_replicas_continue_with_their_own_buffers(averaging) -> None:
    keys = ("replicas.count=2", "optimizer={kind: adam, ema_decay: 0.8}")
    whole = averaging.run(*keys, name="whole")
    averaging.run(*keys, "run.steps=4")
    same(averaging.resume("run.steps=8"), whole)


def test_it_is_evaluated_and_takes_memory(averaging) -> None:
    run = averaging.run()
    found = evaluate(TrainedNetwork(averaging.folder / "run", allow_code=False))
    assert found.scores[-1].validation == run.summary.scores.validation
    specs = [load_spec(averaging.spec, [f"optimizer.ema_decay={decay}"]).spec for decay in ("0.8", "null")]
    networks = [Workload.open(spec, UserCode(averaging.folder)).network for spec in specs]
    cpu = torch.device("cpu")
    with_it, without = (estimate_costs(each, batch_size=16, device=cpu).components for each in networks)
    for own, other in zip(with_it, without, strict=True):
        counts = 8  # of mini-batches, in the batch normalisation, an integer
        assert own.optimizer_bytes - other.optimizer_bytes == own.parameter_bytes - counts


def test_replicas_that_train_apart_have_no_average_in_common(averaging) -> None:
    with pytest.raises(SpecError) as error:
        load_spec(averaging.spec, ["replicas={count: 2, synchronise: {average_every: 2 steps}}"])
    assert [problem.key for problem in error.value.problems] == ["optimizer.ema_decay"]
