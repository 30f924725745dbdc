"""The first promise: every schedule, partition and engine gives the same weights and accuracies, bit for bit."""

from __future__ import annotations

import itertools

import pytest

from alray.orchestrate import Finished

PARTITIONS = [
    [last - first for first, last in itertools.pairwise([0, *cuts, 4])]
    for stages in range(1, 5)
    for cuts in itertools.combinations(range(1, 4), stages - 1)
]


def same(run: Finished, reference: Finished) -> None:
    assert run.error is None
    assert run.summary.status == "finished"
    assert run.summary.weights_sha256 == reference.summary.weights_sha256
    assert run.summary.accuracy_per_depth == reference.summary.accuracy_per_depth
    assert run.summary.accuracy == reference.summary.accuracy
    assert run.summary.best == reference.summary.best


def test_there_are_eight_partitions_of_four_components() -> None:
    assert len(PARTITIONS) == 8


@pytest.mark.parametrize("schedule", ["sequential", "parallel_backward", "overlapped", "streamed"])
@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_inline(workshop, reference, partition, schedule) -> None:
    run = workshop.run(f"pipeline.partition={partition}", f"pipeline.schedule={schedule}", "pipeline.in_flight=1")
    same(run, reference)
    assert run.summary.partition == partition


@pytest.mark.parametrize("in_flight", [1, 2, 7])
def test_inline_with_any_room_on_the_edges(workshop, reference, in_flight) -> None:
    same(workshop.run("pipeline.partition=[2,1,1]", f"pipeline.in_flight={in_flight}"), reference)


@pytest.mark.timeout(400)
def test_ray(workshop, reference, local_ray) -> None:
    for number, partition in enumerate(PARTITIONS):
        run = workshop.run(f"pipeline.partition={partition}", inline=False, name=f"streamed-{number}")
        same(run, reference)
        assert run.summary.engine == "ray"


@pytest.mark.parametrize("schedule", ["sequential", "parallel_backward", "overlapped"])
def test_barriers_between_processes(workshop, reference, processes, schedule) -> None:
    same(workshop.run("pipeline.partition=[1,2,1]", f"pipeline.schedule={schedule}", inline=False), reference)


def test_another_seed_gives_other_weights(workshop, reference) -> None:
    assert workshop.run("seed=4").summary.weights_sha256 != reference.summary.weights_sha256


def test_workers_change_nothing(workshop, reference) -> None:
    same(workshop.run("data.workers=1", "pipeline.partition=[1,3]"), reference)
