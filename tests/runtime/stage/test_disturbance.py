"""When replicas are slowed, and by how much."""

from __future__ import annotations

from itertools import groupby
from types import SimpleNamespace
from typing import Any

import pytest

from alray.config.sections.replicas import FixedDisturbance, RandomDisturbance
from alray.runtime.stage import clock, gpu_times
from alray.runtime.stage.clock import Clock
from alray.runtime.stage.disturbance import Slowdown, slowed
from alray.runtime.stage.gpu_times import GpuTimes
from alray.runtime.stage.ports import Ports
from alray.runtime.stage.stage import MiniBatch, Stage

from ...programs import parse_program
from .test_clock import Gpu, Hands, hands  # noqa: F401 - a fixture

FIXED = FixedDisturbance(workers=(1, 3), factor=3.0, epochs=(2, 6))
RANDOM = RandomDisturbance(kind="random", factor=2.5)


def course(disturbance: RandomDisturbance, worker: int, seed: int, epochs: int) -> list[float]:
    return [slowed(disturbance, worker, epoch, seed=seed)[0] for epoch in range(epochs)]


def test_the_epochs_that_are_named_both_ends_included() -> None:
    assert [slowed(FIXED, 1, epoch, seed=0)[0] for epoch in range(7)] == [1.0, 3.0, 3.0, 3.0, 3.0, 3.0, 1.0]
    assert slowed(FIXED, 3, 2, seed=9) == (3.0, 0.0)
    assert slowed(FIXED, 0, 2, seed=0) == slowed(FIXED, 2, 2, seed=0) == (1.0, 0.0)


def test_seconds_are_added_to_slowed_epochs_alone_and_drawn_for_each() -> None:
    added = FixedDisturbance(workers=(1,), added_s=(5.0, 10.0), epochs=(2, 40))
    drawn = [slowed(added, 1, epoch, seed=0)[1] for epoch in range(41)]
    assert drawn[0] == drawn[40] == slowed(added, 0, 3, seed=0)[1] == 0.0
    assert all(5.0 <= each <= 10.0 for each in drawn[1:40]) and len(set(drawn[1:40])) == 39
    assert slowed(added, 1, 3, seed=0)[0] == 1.0


def test_bad_luck_is_a_function_of_seed_and_worker() -> None:
    one = course(RANDOM, 0, 1, 60)
    assert one == course(RANDOM, 0, 1, 60) and set(one) == {1.0, 2.5}
    assert one != course(RANDOM, 1, 1, 60) and one != course(RANDOM, 0, 2, 60)


def runs(least: int, most: int) -> set[int]:
    """Lengths of all runs of bad luck that have an end; one may follow right upon another."""
    rare = RandomDisturbance(kind="random", factor=2.0, chance=0.02, least_epochs=least, most_epochs=most)
    lengths = set()
    for worker in range(15):
        seen = [(value, len(list(run))) for value, run in groupby(course(rare, worker, 0, 100))]
        lengths |= {length for value, length in seen[:-1] if value > 1.0}
    return lengths


@pytest.mark.full
def test_bad_luck_lasts_from_the_least_to_the_most_epochs() -> None:
    assert all(length % 3 == 0 for length in runs(3, 3))
    assert min(runs(2, 5)) == 2 and runs(2, 5) >= {2, 3, 4, 5}


def test_bad_luck_begins_as_often_as_the_chance_says() -> None:
    """Of 3,000 epochs in which a worker is free; 0.1 has a standard deviation of 0.0055 then."""
    brief = RandomDisturbance(kind="random", factor=2.0, chance=0.1, least_epochs=1, most_epochs=1)
    drawn = [slowed(brief, worker, epoch, seed=3)[0] for worker in range(100) for epoch in range(30)]
    assert 0.08 < sum(value > 1.0 for value in drawn) / len(drawn) < 0.12


def test_certain_bad_luck_never_ends() -> None:
    certain = RandomDisturbance(kind="random", factor=2.0, chance=1.0, least_epochs=4, most_epochs=20)
    assert set(course(certain, 0, 0, 50)) == {2.0}


def test_a_replica_draws_once_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A draw takes longer, the later the epoch is: 4 ms in the 200th."""
    drawn = []

    def noted(disturbance: Any, worker: int, epoch: int, *, seed: int) -> tuple[float, float]:
        drawn.append((worker, epoch))
        return slowed(disturbance, worker, epoch, seed=seed)

    monkeypatch.setattr("alray.runtime.stage.disturbance.slowed", noted)
    spec: Any = SimpleNamespace(replicas=SimpleNamespace(disturbance=RANDOM), seed=0)
    slow = Slowdown(spec, 1, steps_per_epoch=3)
    for step in range(1, 8):
        assert list(slow.wait(step, 0.0)) == []
    assert drawn == [(1, 0), (1, 1), (1, 2)]


@pytest.mark.usefixtures("hands")
def test_what_a_gpu_has_still_to_compute_is_slowed_too(
    hands: Hands,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The host comes to the update while the GPU is still at the forward pass."""
    monkeypatch.setattr(gpu_times, "time", clock.time)
    gpu, noted = Gpu(hands), list[float]()

    def computed(seconds: float) -> dict[int, Any]:
        gpu.compute(seconds)
        return {}

    work: Any = SimpleNamespace(
        clips_together=False,
        runs=[slice(0, 1)],
        components=[],
        begin=lambda: None,
        replication=SimpleNamespace(own_samples=lambda samples: samples, averages_gradients=False),
        forward=lambda part: computed(1.0),
        backward=lambda part: computed(2.0),
        update=lambda *rates, step: computed(0.5),
    )
    slow: Any = SimpleNamespace(
        depends_on_computing=lambda step: step == 1, wait=lambda step, computed_s: noted.append(computed_s) or []
    )
    stage = Stage(work, parse_program("0F0 0B0 0U0")[0], micro_batches=1, slowdown=slow)
    own_clock = Clock(started_wall_s=50.0, start_step=0, gpu=GpuTimes(gpu.event))
    for step in (1, 2):
        assert list(stage.mini_batch(MiniBatch(step, lr=0.1, samples=1), Ports(), own_clock)) == []
        own_clock.step_done()
    assert noted[0] == pytest.approx(3.0, abs=0.01)
    assert noted[1] < 3.0, "where the slowdown does not depend on it, the host waits for no GPU"
