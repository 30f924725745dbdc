"""Networks learn mixed samples as a plain loop does, and in the same bits on every layout."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional

from alray.config.loading.load import load_spec
from alray.config.user_code import UserCode
from alray.core.errors import SpecError
from alray.data.batches import TrainBatches
from alray.inference.network import TrainedNetwork
from alray.orchestrate import Finished
from alray.runtime.workload import Workload

from ..pairwise import first_alone
from .conftest import Workshop
from .test_same_bits import same

SPEC = """
name: mixed
seed: 3
data:
  source: synthetic
  shape: [2, 8, 8]
  classes: 4
  samples: 150
  batch_size: 16
  validation_fraction: 0.2
  mix: {mixup: 0.4, cutmix: 1.0}
model: {components: [{block: vgg, channels: [4]}, {block: vgg, channels: [6], pool: true}, {block: vgg, channels: [6]}]}
method: {kind: backpropagation}
optimizer: {kind: sgd, lr: 0.05}
pipeline: {costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost, *cost]}
run: {epochs: 2, evaluate_every: 4 steps, checkpoint: {every: 5 steps, keep: 50}}
"""
METHODS = {
    "bp": ("method={kind: backpropagation, label_smoothing: 0.1}", "pipeline.schedule=naive"),
    "al": ("method={kind: associated_learning, label_dim: 8}",),
    "al_mse": ("method={kind: associated_learning, label_dim: 8, first_label_loss: mse}",),
    "dgl": ("method={kind: decoupled_greedy}",),
}


@pytest.fixture
def mixed(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path, SPEC)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finished]:
    """Each method on one stage."""
    workshop = Workshop(tmp_path_factory.mktemp("mixed"), SPEC)
    return {name: workshop.run(*method, "pipeline.stages=1", name=name) for name, method in METHODS.items()}


@pytest.mark.full
@pytest.mark.parametrize("method", first_alone(METHODS))
def test_two_stages_and_a_resume_on_one_give_the_same_bits(mixed, whole, processes, method) -> None:
    mixed.run(*METHODS[method], "pipeline.stages=2", "run.epochs=1", "data.workers=1", inline=False)
    same(mixed.resume("run.epochs=2", "pipeline.stages=1"), whole[method])


def test_a_plain_loop_has_the_same_weights(mixed) -> None:
    """Backpropagation of the cross-entropy with shares of classes."""
    overrides = ("pipeline.stages=1", "run={steps: 6, checkpoint: {every: 6 steps}}", "run.precision=float64")
    mixed.run(*overrides)
    spec = load_spec(mixed.spec, overrides).spec
    workload = Workload.open(spec, UserCode(mixed.folder))
    components = [workload.network.component(index, "cpu").double() for index in range(3)]
    parameters = [parameter for component in components for parameter in component.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.05)
    with TrainBatches(workload.data, seed=3, start_step=0, end_step=6, workers=0) as batches:
        for batch in batches:
            assert (batch.labels > 0).sum() > len(batch.labels), "rows of two classes"
            scores = batch.samples.double()
            for component in components:
                scores = component.f.body(scores)
            loss = -(batch.labels.double() * functional.log_softmax(components[-1].head(scores), 1)).sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    trained = TrainedNetwork(mixed.folder / "run", allow_code=False).components
    for index, component in enumerate(components):
        for name, value in trained[index].weights().items():
            assert torch.allclose(value.double(), component.weights()[name].double(), atol=1e-10), (index, name)


@pytest.mark.parametrize(
    ("key", "override"),
    [
        ("data.mix", "method={kind: supervised_contrastive}"),
        ("data.mix", "method={kind: local_error_signals}"),
        ("data.mix", "task.kind=regression"),
        ("data.mix", "data.mix={}"),
        ("data.mix.mixup", "data.mix.mixup=0"),
    ],
)
def test_what_cannot_learn_shares_is_refused(mixed, key, override) -> None:
    with pytest.raises(SpecError) as error:
        load_spec(mixed.spec, [override])
    assert error.value.problems[0].key == key
