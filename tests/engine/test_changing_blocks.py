"""Blocks whose forward changes something of the block: the same bits on any stages, or an error that names it."""

from __future__ import annotations

import shutil

import pytest
import torch

from alray.core.errors import SpecError
from alray.data.batches import EvaluationBatches
from alray.inference.network import TrainedNetwork
from tests.models import blocks_that_change

from .conftest import Workshop

SPEC = """
name: changing
seed: 5
data: {source: synthetic, shape: [7], classes: 3, samples: 60, batch_size: 12, validation_fraction: 0.2}
model: {components: [{block: linear, width: 7}, COMPONENTS]}
method: {kind: backpropagation}
optimizer: {kind: sgd, lr: 0.1, momentum: 0.9}
pipeline: {stages: 2, micro_batches: 4, micro_batch_norm: accept, costs: [COSTS]}
run: {steps: 5}
"""
COST = "{forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}"
AGAIN = "pipeline.activation_checkpointing=true"


@pytest.fixture
def workshop_of(tmp_path):
    """Makes the network of these blocks."""
    shutil.copy(blocks_that_change.__file__, tmp_path / "own.py")

    def made(*blocks: type) -> Workshop:
        workshop = Workshop(tmp_path)
        parts = ", ".join(f"{{block: 'python:own.{block.__name__}', width: 7}}" for block in blocks)
        costs = ", ".join([COST] * (len(blocks) + 1))
        workshop.spec.write_text(SPEC.replace("COMPONENTS", parts).replace("COSTS", costs))
        return workshop

    return made


def test_the_same_bits(workshop_of) -> None:
    workshop = workshop_of(*blocks_that_change.BLOCKS)
    ways = {
        "one": ("pipeline.schedule=1f1b", "pipeline.stages=1"),
        "two": ("pipeline.schedule=1f1b",),
        "again": ("pipeline.schedule=1f1b", AGAIN),
        "split": ("pipeline.schedule=zero_bubble",),
        "split_again": ("pipeline.schedule=zero_bubble", AGAIN),
        "gpipe_again": ("pipeline.schedule=gpipe", "pipeline.stages=3", AGAIN),
    }
    runs = {name: workshop.run(*overrides, name=name) for name, overrides in ways.items()}
    assert [run.error for run in runs.values()] == [None] * len(ways)
    assert len({run.summary.weights_sha256 for run in runs.values()}) == 1


def test_gradients_are_added_in_order_where_something_begins_to_use_a_weight(workshop_of) -> None:
    """It begins in the middle of a mini-batch, when those of earlier micro-batches still wait in a split backward."""
    workshop = workshop_of(blocks_that_change.UsingLater, blocks_that_change.UsingLater)
    runs = [workshop.run(f"pipeline.schedule={each}", name=each) for each in ("1f1b", "zero_bubble")]
    assert len({run.summary.weights_sha256 for run in runs}) == 1


def test_a_buffer_that_comes_during_the_run(workshop_of) -> None:
    """Also with an average of the weights, which begins with it."""
    workshop = workshop_of(blocks_that_change.Coming, blocks_that_change.Coming)
    for average in ("null", "0.9"):
        ways = ("pipeline.stages=1",), ("pipeline.stages=2",), ("pipeline.stages=2", AGAIN)
        runs = [
            workshop.run("pipeline.schedule=1f1b", f"optimizer.ema_decay={average}", *way, name=f"{average}-{number}")
            for number, way in enumerate(ways)
        ]
        assert [run.error for run in runs] == [None] * len(ways)
        assert len({run.summary.weights_sha256 for run in runs}) == 1


def test_an_evaluation_leaves_no_trace(workshop_of) -> None:
    """Neither in the weights of the run, nor in the figures of what is evaluated after it."""
    workshop = workshop_of(blocks_that_change.Observing, blocks_that_change.Observing)
    ways = {
        "never": ("run.evaluate_every=null", "run.train=never"),
        "often": ("run.evaluate_every=1 steps",),
        "three": ("run.evaluate_every=2 steps", "pipeline.stages=3"),
        "average": ("run.evaluate_every=1 steps", "optimizer.ema_decay=0.9"),
        "average_never": ("run.evaluate_every=null", "run.train=never", "optimizer.ema_decay=0.9"),
    }
    runs = {name: workshop.run("pipeline.schedule=1f1b", *overrides, name=name) for name, overrides in ways.items()}
    never, often, three, average, average_never = (run.summary.weights_sha256 for run in runs.values())
    assert never == often == three and average == average_never != never
    network = TrainedNetwork(workshop.folder / "often", allow_code=True)
    batch = next(iter(EvaluationBatches(network.workload.data, "test")))
    (first,) = network.scores(batch, 0)
    network.evaluate(("train", "test"))
    assert torch.equal(network.scores(batch, 0)[0], first)


@pytest.mark.parametrize(
    ("block", "overrides", "said"),
    [
        (blocks_that_change.Unfreezing, ("pipeline.schedule=1f1b",), "`f.k.weight` of component 1 begins to learn"),
        (
            blocks_that_change.Scaling,
            ("pipeline.schedule=1f1b", "pipeline.partition=[2,1]"),
            "let `forward` compute with a copy",
        ),
        (
            blocks_that_change.Scaling,
            ("pipeline.schedule=2bw", "pipeline.partition=[2,1]"),
            "let `forward` compute with a copy",
        ),
        *(
            (block, ("pipeline.schedule=1f1b", "pipeline.partition=[2,1]", AGAIN), f"changes the parameter `f.{name}`")
            for block, name in (
                (blocks_that_change.Normalising, "l.weight"),
                (blocks_that_change.NormalisingByData, "l.weight"),
                (blocks_that_change.Codebook, "code"),
            )
        ),
        *(
            (block, ("pipeline.schedule=2bw", "pipeline.stages=3"), f"the parameter `f.{name}`, of which")
            for block, name in (
                (blocks_that_change.Normalising, "l.weight"),
                (blocks_that_change.NormalisingByData, "l.weight"),
                (blocks_that_change.Pruning, "l.weight"),
                (blocks_that_change.Moving, "l.weight"),
                (blocks_that_change.Limited, "e.weight"),
            )
        ),
        (
            blocks_that_change.Limited,
            ("pipeline.schedule=2bw", "pipeline.stages=1"),
            "the parameter `f.e.weight`, of which",
        ),
        (
            blocks_that_change.Limited,
            ("pipeline.schedule=2bw", AGAIN),
            "the parameter `f.e.weight`, of which",
        ),
        (
            blocks_that_change.Reusing,
            ("pipeline.schedule=zero_bubble",),
            "choose a schedule that does not split",
        ),
    ],
)
def test_what_cannot_train_is_named(workshop_of, block: type, overrides: tuple[str, ...], said: str) -> None:
    run = workshop_of(block, block).run(*overrides)
    assert run.error is not None and said in str(run.error)


def test_sparse_gradients_are_refused(workshop_of) -> None:
    with pytest.raises(SpecError, match="leave `sparse` out"):
        workshop_of(blocks_that_change.Sparse).run()
