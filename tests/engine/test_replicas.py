"""Replicas train what one process trains on the whole mini-batch; they agree on cuts, deal shares, and go on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from alray.orchestrate import Finished
from alray.records import read

from .conftest import Workshop

SPEC = """
name: replicas
seed: 3
data: {source: synthetic, shape: [2, 8, 8], classes: 4, samples: 400, batch_size: 64, validation_fraction: 0.2}
model:
  components:
    - {block: mlp, widths: [24], activation: tanh}
    - {block: mlp, widths: [16], activation: tanh}
    - {block: linear, width: 12, activation: tanh}
method: {kind: associated_learning, label_dim: 12}
pipeline: {costs: [{forward_s: 1, backward_s: 1, update_s: 0}, {forward_s: 1, backward_s: 1, update_s: 0},
                   {forward_s: 1, backward_s: 1, update_s: 0}]}
run: {steps: 10, evaluate_every: 4 steps, checkpoint: {every: 5 steps, keep: 50}}
"""
SLOW = '''
import time
import torch


class Slow(torch.nn.Module):
    """Takes its time for every sample, on a busy machine as on an idle one."""

    def __init__(self, input, sample_s=5e-4):
        super().__init__()
        self.linear = torch.nn.Linear(input.elements, 24)
        self.sample_s = sample_s

    def forward(self, s, mask=None):
        if s.device.type != "meta":
            time.sleep(self.sample_s * len(s))
        return torch.tanh(self.linear(s.flatten(1)))
'''
SGD = (["optimizer={kind: sgd, lr: 0.1, momentum: 0.9}"], 1e-5)
ADAM = (["optimizer={kind: adam, lr: 0.01}", "run.precision=float64"], 1e-10)
BP = ["method=backpropagation", "pipeline.schedule=single"]
ALL_REDUCES = ("backend", "ring", "halving_doubling", "tree", "star")


@pytest.fixture
def replicated(tmp_path: Path) -> Workshop:
    workshop = Workshop(tmp_path)
    workshop.spec.write_text(SPEC)
    return workshop


def weights(run: Finished) -> torch.Tensor:
    """All weights of the last checkpoint as one vector of double precision."""
    assert run.error is None, run.error
    assert run.summary.status == "finished"
    folder = max((Path(run.summary.run_dir) / "checkpoints").iterdir())
    files = sorted(folder.glob("component-*.safetensors"))
    return torch.cat([value.double().flatten() for file in files for _, value in sorted(load_file(file).items())])


def distance(run: Finished, reference: Finished) -> float:
    expected = weights(reference)
    return float((weights(run) - expected).norm() / expected.norm())


def replicas(count: int, *more: str) -> list[str]:
    return [f"replicas.count={count}", *more]


@pytest.mark.parametrize("setting", [SGD, ADAM], ids=["sgd", "adam"])
@pytest.mark.parametrize("method", [[], BP], ids=["al", "bp"])
def test_equal_one_process_on_the_whole_mini_batch(replicated, method, setting) -> None:
    overrides, tolerance = [*method, *setting[0]], setting[1]
    one = replicated.run(*overrides, name="one")
    layouts = [replicas(2 + place % 4, f"replicas.all_reduce={name}") for place, name in enumerate(ALL_REDUCES)]
    for number, layout in enumerate([*layouts, replicas(3, "replicas.shares=[5, 17, 42]")]):
        run = replicated.run(*overrides, *layout, name=f"several-{number}")
        assert distance(run, one) <= tolerance, layout
        assert run.summary.accuracy == one.summary.accuracy
        assert run.summary.all_reduce_bytes > 0
    assert run.summary.shares == [5, 17, 42]


@pytest.mark.full
@pytest.mark.parametrize("name", ALL_REDUCES)
def test_every_number_of_replicas_equals_one_process(replicated, name) -> None:
    one = replicated.run(*SGD[0], name="one")
    for count in (2, 3, 4, 5):
        run = replicated.run(*SGD[0], *replicas(count, f"replicas.all_reduce={name}"), name=f"several-{count}")
        assert distance(run, one) <= SGD[1], count


def test_every_partition_gives_the_same_bits(replicated) -> None:
    reference = replicated.run(*SGD[0], *replicas(2), name="reference")
    for number, partition in enumerate(([1, 2], [2, 1], [1, 1, 1])):
        run = replicated.run(*SGD[0], *replicas(2), f"pipeline.partition={partition}", name=f"run-{number}")
        assert run.summary.weights_sha256 == reference.summary.weights_sha256
        assert run.summary.accuracy_per_depth == reference.summary.accuracy_per_depth


def test_the_last_mini_batch_may_be_smaller(replicated) -> None:
    overrides = [*ADAM[0], "data.last_batch=keep", "data.samples=365"]  # 292 to train: four of 64, one of 36
    one = replicated.run(*overrides, name="one")
    run = replicated.run(*overrides, *replicas(3), name="several")
    assert distance(run, one) <= ADAM[1]


def test_losses_are_means_over_all_samples(replicated) -> None:
    def losses(run: Finished) -> list:
        records = read(Path(run.summary.run_dir) / "records.jsonl")
        return [
            value
            for record in records
            if record.kind == "step"
            for named in record.losses.values()
            for value in named.values()
        ]

    one = replicated.run(*ADAM[0], name="one")
    run = replicated.run(*ADAM[0], *replicas(3, "replicas.shares=[5, 17, 42]"), name="several")
    assert losses(run) == pytest.approx(losses(one), rel=1e-8)


@pytest.mark.parametrize("kind", ["fp16", "bf16", "{kind: powersgd, rank: 2}", "{kind: top_k, fraction: 0.2}"])
def test_compressed_runs_are_resumed_to_the_same_bits(replicated, kind) -> None:
    overrides = [*SGD[0], *replicas(2, f"replicas.compression={kind}")]
    whole = replicated.run(*overrides, name="whole")
    exact = replicated.run(*SGD[0], name="exact")
    assert 0.0 < distance(whole, exact) < 0.3, "something is lost, and not everything"
    replicated.run(*overrides, "run.steps=5")
    again = replicated.resume("run.steps=10")
    assert again.summary.weights_sha256 == whole.summary.weights_sha256


def test_averaged_weights(replicated) -> None:
    """Local SGD: by one step between means, plain SGD is what averaging gradients is; by more it is not."""
    overrides = ["optimizer={kind: sgd, lr: 0.1}", "run.precision=float64"]
    one = replicated.run(*overrides, name="one")
    apart = replicated.run(*overrides, *replicas(2, "replicas.synchronise={average_every: 5 steps}"), name="apart")
    alone = replicated.run(*overrides, *replicas(2, "replicas.synchronise={average_every: 50 steps}"), name="alone")
    assert 1e-9 < distance(apart, one) < 0.2 * distance(alone, one)


def test_stop_at_is_agreed_on(replicated) -> None:
    stop = "run={epochs: 50, evaluate_every: 3 steps, stop_at: {metric: validation_accuracy, above: 0.4}}"
    one = replicated.run(stop, *ADAM[0], name="one")
    run = replicated.run(stop, *ADAM[0], *replicas(2), "pipeline.partition=[1,2]", name="several")
    assert run.summary.steps == one.summary.steps < 250


def test_a_grid(replicated, processes) -> None:
    inline = replicated.run(*SGD[0], *replicas(2), name="inline")
    run = replicated.run(*SGD[0], *replicas(2), "pipeline.partition=[1,2]", inline=False)
    assert run.summary.weights_sha256 == inline.summary.weights_sha256
    assert run.summary.accuracy == inline.summary.accuracy
