"""Shares of a mini-batch that follow the measured speed of the replicas."""

# ruff: noqa: F401, F811 - fixtures of the other files are used here too

from __future__ import annotations

from pathlib import Path

import pytest

from alray.core.run_folder.store import manifests

from .test_replicas import ADAM, SGD, SLOW, distance, replicas, replicated
from .test_sync_batch_norm import SHARED, normalised


@pytest.mark.full
def test_shares_follow_the_speed(replicated) -> None:
    """One of two replicas is slowed three times in epochs 2 to 4: it takes less meanwhile, and as much before long."""
    (replicated.folder / "slow.py").write_text(SLOW)
    costly = ["model.components.0={block: 'python:slow.Slow'}", "data.samples=1000"]
    run = replicated.run(
        "run={epochs: 7, checkpoint: {every: 1 epoch, keep: 50}}",
        *SGD[0],
        *costly,
        *replicas(2, "replicas.balance=dynamic_batch_size"),
        "replicas.disturbance={workers: [1], factor: 3.0, epochs: [2, 4]}",
    )
    assert run.error is None, run.error
    after = [manifest["shares"] for manifest in manifests(Path(run.summary.run_dir))]
    assert len(after) == 7
    assert all(sum(shares) == 64 for shares in after)
    assert after[2][1] < 24, after  # ideal 16, where the disturbance makes all the difference
    assert after[5][1] > 24, after
    assert run.summary.shares == after[6]


@pytest.mark.full
def test_a_share_does_not_shrink_below_what_is_normalised(replicated) -> None:
    """Batch normalisation of maps of one pixel needs two samples, however slow the replica is."""
    run = replicated.run(
        "data={source: synthetic, shape: [1, 1, 1], classes: 3, samples: 40, batch_size: 8}",
        "model.components=[{block: vgg, channels: [3]}]",
        "pipeline.costs=null",
        "run={epochs: 3, checkpoint: {every: 1 epoch, keep: 9}}",
        *replicas(2, "replicas.balance=dynamic_batch_size"),
        "replicas.disturbance={workers: [1], factor: 40.0, epochs: [1, 9]}",
    )
    assert run.error is None, run.error
    assert run.summary.shares == [6, 2]


def test_dynamic_shares_are_in_the_checkpoint(replicated) -> None:
    overrides = [*SGD[0], *replicas(2, "replicas.balance=dynamic_batch_size")]
    run = replicated.run(*overrides, "replicas.disturbance={workers: [1], factor: 8.0, epochs: [1, 9]}")
    dealt = manifests(Path(run.summary.run_dir))[-1]["shares"]
    assert dealt[0] > 40
    again = replicated.resume("run.steps=11")
    assert again.error is None
    assert again.summary.shares == dealt, "the share it goes on with, until the end of the epoch"


@pytest.mark.full
@pytest.mark.parametrize(
    ("change", "samples"), [(["replicas.balance=fixed", "replicas.shares=[24, 40]"], 64), (["data.batch_size=32"], 32)]
)
def test_shares_of_a_checkpoint_that_no_longer_suit(replicated, change, samples) -> None:
    """The run goes on with those of the spec, and with even ones where its shares follow the speed."""
    overrides = [*SGD[0], *replicas(2, "replicas.balance=dynamic_batch_size")]
    replicated.run(*overrides, "replicas.disturbance={workers: [1], factor: 8.0, epochs: [1, 9]}")
    again = replicated.resume(*change, "run.steps=22", allow_change=True)
    assert again.error is None, again.error
    assert sum(again.summary.shares) == samples
    assert samples == 32 or again.summary.shares == [24, 40]


@pytest.mark.full
def test_a_grid_with_shares_that_follow_and_a_resume(normalised, processes) -> None:
    overrides = [*ADAM[0], *replicas(2, "replicas.balance=dynamic_batch_size"), SHARED, "pipeline.partition=[1,2]"]
    overrides.append("replicas.disturbance={workers: [1], factor: 8.0, epochs: [1, 9]}")
    one = normalised.run(*ADAM[0], name="one")
    normalised.run(*overrides, "run.steps=5", inline=False)
    run = normalised.resume("run.steps=10", inline=False)
    assert distance(run, one) <= ADAM[1]
    dealt = {manifest["step"]: manifest["shares"] for manifest in manifests(Path(run.summary.run_dir))}
    assert dealt[5][0] > 40 and dealt[10][0] > 40, "after the first epoch, and after the resume"
