"""Replicas that meet seldom (DiLoCo): the weights of a plain loop, on any stages, whatever interrupts the run."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional

from alray.config.loading.load import load_spec
from alray.config.user_code import UserCode
from alray.data.batches import TrainBatches
from alray.orchestrate import Finished
from alray.runtime.workload import Workload

from .conftest import Workshop

SPEC = """
name: seldom
seed: 5
data: {source: synthetic, shape: [6], classes: 3, samples: 120, batch_size: 12, validation_fraction: 0.2}
model: {components: [{block: linear, width: 7, repeat: 3}]}
method: {kind: backpropagation}
optimizer: {kind: sgd, lr: 0.1, momentum: 0.5}
pipeline: {schedule: single, costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost, *cost]}
run: {steps: 14, precision: float64, checkpoint: {every: 3 steps, keep: 50}}
"""
EACH = "{average_every: 1 steps}"
MEAN = "{average_every: 1 steps, outer: {lr: 1.0, momentum: 0.0}}"
PLAIN = "{average_every: 4 steps, outer: {}}"
TURNS = "{average_every: 5 steps, outer: {lr: 0.8, momentum: 0.6}, fragments: 2}"
LATE = "{average_every: 4 steps, outer: {}, fragments: 3, delay: 2}"


@pytest.fixture
def seldom(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path, SPEC)


def replicas(count: int, synchronise: str) -> tuple[str, ...]:
    return (f"replicas.count={count}", f"replicas.synchronise={synchronise}")


def weights(run: Finished) -> list[list[torch.Tensor]]:
    """Of each component, by name."""
    assert run.error is None, run.error
    folder = max((Path(run.summary.run_dir) / "checkpoints").iterdir())
    files = [load_file(file) for file in sorted(folder.glob("component-*.safetensors"))]
    return [[file[name] for name in sorted(file)] for file in files]


def plain_loop(workshop: Workshop, count: int, synchronise: str) -> list[list[torch.Tensor]]:
    """The same training as a loop over replicas; in the end the mean of their weights.

    The outer step is written out, as in algorithm 1 of arXiv 2311.08105 with Nesterov's momentum.
    """
    spec = load_spec(workshop.spec, replicas(count, synchronise)).spec
    apart = spec.replicas.synchronise
    workload = Workload.open(spec, UserCode(workshop.folder))
    starts = [
        [dict(component.weights())[name].clone() for name in sorted(component.weights())]
        for component in (workload.network.component(index, "cpu") for index in range(3))
    ]
    own = [[[value.clone() for value in each] for each in starts] for _ in range(count)]
    inner = [[[torch.zeros_like(value) for value in each] for each in starts] for _ in range(count)]
    outer = [[torch.zeros_like(value) for value in each] for each in starts]
    arriving: dict[tuple[int, int], list[torch.Tensor]] = {}
    names = [sorted(workload.network.component(index, "cpu").weights()) for index in range(3)]
    with TrainBatches(workload.data, seed=spec.seed, start_step=0, end_step=14, workers=0) as batches:
        for step, batch in enumerate(batches, 1):
            for replica in range(count):
                part = slice(replica * 12 // count, (replica + 1) * 12 // count)
                values = [[value.detach().requires_grad_() for value in each] for each in own[replica]]
                s = batch.samples[part].double()
                named = [dict(zip(*each, strict=True)) for each in zip(names, values, strict=True)]
                for component in named:
                    body = sorted({name.rpartition(".")[0] for name in component})[0]
                    s = functional.relu(functional.linear(s, component[f"{body}.weight"], component[f"{body}.bias"]))
                head = sorted({name.rpartition(".")[0] for name in named[-1]})[1]
                scores = functional.linear(s, named[-1][f"{head}.weight"], named[-1][f"{head}.bias"])
                functional.cross_entropy(scores, batch.labels[part]).backward()
                for value, found, momentum in zip(
                    *(chain.from_iterable(each) for each in (own[replica], values, inner[replica])), strict=True
                ):
                    momentum.mul_(0.5).add_(found.grad)
                    value.sub_(0.1 * momentum)
            for index in range(3):
                offset = index % apart.fragments * apart.num_steps // apart.fragments
                if (step - offset) % apart.num_steps == 0:
                    mean = [torch.stack(each).mean(0) for each in zip(*(each[index] for each in own), strict=True)]
                    arriving[index, step + apart.delay] = [
                        start - value for start, value in zip(starts[index], mean, strict=True)
                    ]
                if (index, step) not in arriving:
                    continue
                keep = 0.5 if apart.delay else 0.0
                for place, difference in enumerate(arriving.pop((index, step))):
                    momentum = outer[index][place]
                    momentum.mul_(apart.outer.momentum).add_(difference)
                    starts[index][place] -= apart.outer.lr * (difference + apart.outer.momentum * momentum)
                    for each in own:
                        each[index][place].mul_(keep).add_((1 - keep) * starts[index][place])
    return [[torch.stack(each).mean(0) for each in zip(*of, strict=True)] for of in zip(*own, strict=True)]


@pytest.mark.parametrize(
    ("count", "synchronise"), [(2, PLAIN), (3, LATE), pytest.param(4, TURNS, marks=pytest.mark.full)]
)
def test_the_weights_are_those_of_a_plain_loop(seldom: Workshop, count: int, synchronise: str) -> None:
    run = seldom.run(*replicas(count, synchronise))
    for found, expected in zip(weights(run), plain_loop(seldom, count, synchronise), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("synchronise", [pytest.param(TURNS, marks=pytest.mark.full), LATE])
def test_a_run_is_stopped_anywhere_and_resumed_to_the_same_bits(seldom: Workshop, synchronise: str) -> None:
    whole = seldom.run(*replicas(2, synchronise), "run.checkpoint=null", name="whole").summary.weights_sha256
    for steps in (5, 6, 9):  # with a result under way, and without
        seldom.run(*replicas(2, synchronise), f"run.steps={steps}", "run.evaluate_every=2 steps", name=f"to-{steps}")
        again = seldom.resume("run.steps=14", name=f"to-{steps}")
        assert again.summary.weights_sha256 == whole, steps


@pytest.mark.parametrize(
    ("count", "synchronise", "key"),
    [
        (1, PLAIN, "nothing is changed by `replicas.synchronise`"),
        (2, LATE, None),
    ],
)
def test_a_key_that_changes_nothing_is_told(seldom: Workshop, count: int, synchronise: str, key: str | None) -> None:
    """A study over the number of replicas has one of them, too."""
    loaded = load_spec(seldom.spec, replicas(count, synchronise))
    notes = [note for note in Workload.open(loaded.spec, UserCode(seldom.folder)).notes if "nothing" in note]
    assert len(notes) == (key is not None) and all(key in note for note in notes)


@pytest.mark.full
def test_other_partitions_and_other_replicas(seldom: Workshop) -> None:
    overrides = ("method=decoupled_greedy", "pipeline.schedule=streamed", *replicas(2, LATE))
    one = seldom.run(*overrides, name="one").summary.weights_sha256
    two = seldom.run(*overrides, "pipeline.stages=2", name="two").summary.weights_sha256
    assert one == two
    seldom.run(*overrides, "run.steps=5", name="part")
    run = seldom.resume("run.steps=14", "replicas.count=3", name="part", allow_change=True)
    assert run.error is None and run.summary.steps == 14


def test_replicas_that_meet_after_each_mini_batch_average_weights(seldom: Workshop) -> None:
    """By Adam that is not the mean of the gradients; an outer optimizer of rate 1 without momentum is the mean."""
    adam = "optimizer={kind: adam, lr: 0.01}"
    found, mean, gradients = (
        weights(seldom.run(adam, *replicas(2, synchronise), name=f"run-{number}"))
        for number, synchronise in enumerate((EACH, MEAN, "every_step"))
    )
    torch.testing.assert_close(found, mean, rtol=1e-10, atol=1e-10)
    apart = zip(chain(*found), chain(*gradients), strict=True)
    assert max(float((one - other).abs().max()) for one, other in apart) > 1e-4
