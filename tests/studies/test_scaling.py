"""Speed-up and efficiency of made-up studies, on a growing number of stages or replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from alray.studies.records import TrialRecord
from alray.studies.scaling import scaling_of, with_gains
from alray.studies.table import PointRow, rows_of, table_of

from .conftest import trial


def rows(trials: Sequence[TrialRecord]) -> list[PointRow]:
    found = rows_of(trials, target=False)
    return with_gains(found, scaling_of(found))


def gains(trials: Sequence[TrialRecord]) -> list[tuple[Any, Any]]:
    return [
        (row.speed_up.mean if row.speed_up else None, row.efficiency.mean if row.efficiency else None)
        for row in rows(trials)
    ]


def test_strong_scaling_is_over_the_point_with_the_fewest_stages() -> None:
    points = [{"pipeline.stages": stages, "variant": variant} for variant in ("al", "bp") for stages in (4, 2)]
    times = [0.025, 0.04, 0.1, 0.1]
    trials = [
        trial(number, point, step_time_s=times[number], ran={"partition": [12 // count] * count})
        for number, point in enumerate(points)
        for count in (point["pipeline.stages"],)
    ]
    assert gains(trials) == [(pytest.approx(1.6), pytest.approx(0.8)), (1.0, 1.0), (1.0, 0.5), (1.0, 1.0)]
    found = rows(trials)
    assert table_of(found, target=False).head[-2:] == ("speed-up", "efficiency")
    assert "speed-up" not in table_of(rows([trial(0, {})]), target=False).head


def layout(
    stages: int, components: int, method: str = "associated", schedule: str = "streamed", more: int = 0
) -> dict[str, Any]:
    partition = [components // stages + more, *[components // stages] * (stages - 1)]
    return {"stages": stages, "partition": partition, "method": method, "schedule": schedule}


@pytest.mark.parametrize("more", [0, 1])  # an embedding below them
def test_a_network_that_grows_with_the_stages_is_weak_scaling(more: int) -> None:
    points = {1: 0.1, 2: 0.125, 4: 0.2}
    trials = [
        trial(
            number,
            {"pipeline.stages": stages},
            step_time_s=time,
            ran=layout(stages, 3 * stages, more=more),
            overrides=[f"pipeline.stages={stages}", f"model.components.{more}.repeat={3 * stages}"],
        )
        for number, (stages, time) in enumerate(points.items())
    ]
    found = scaling_of(rows_of(trials, target=False))
    assert found is not None and found.kind == "weak" and list(found.series) == ["all points"]
    assert gains(trials) == [(1.0, 1.0), (pytest.approx(1.6), pytest.approx(0.8)), (2.0, 0.5)]


def test_variants_that_set_stages_and_network_together_are_ordered_by_method_and_schedule() -> None:
    sizes = {"al-1": (1, "associated"), "al-2": (2, "associated"), "bp-1": (1, "bp"), "bp-2": (2, "bp")}
    trials = [
        trial(number, {"variant": name}, step_time_s=0.1 * (number + 1), ran=layout(stages, 2 * stages, method))
        for number, (name, (stages, method)) in enumerate(sizes.items())
    ]
    found = scaling_of(rows_of(trials, target=False))
    assert found is not None and found.kind == "weak"
    assert {label: [place.devices for place in places] for label, places in found.series.items()} == {
        "associated, streamed": [1, 2],
        "bp, streamed": [1, 2],
    }
    assert [efficiency for _, efficiency in gains(trials)] == [1.0, 0.5, 1.0, pytest.approx(0.75)]


def test_a_first_seed_that_ended_within_its_warm_up_has_no_say() -> None:
    """It reached the target before a step was timed."""
    trials = [
        trial(2 * at + seed, {"pipeline.stages": at + 1}, seed=seed, step_time_s=0.1 / (at + 1) if seed else None)
        for at in range(2)
        for seed in range(2)
    ]
    assert gains(trials) == [(1.0, 1.0), (2.0, 1.0)]


def test_replicas_scale_too() -> None:
    trials = [
        trial(number, {"replicas.count": count}, step_time_s=0.1 / count, ran={"replicas": count})
        for number, count in enumerate((1, 2))
    ]
    found = scaling_of(rows_of(trials, target=False))
    assert found is not None and found.devices == "replicas" and found.kind == "strong"
    assert gains(trials)[1] == (2.0, 1.0)


def test_variants_on_other_devices_alone_are_no_scaling() -> None:
    """A race has methods on one stage and on two; only one method has both."""
    how = [(1, 1, "al"), (1, 1, "bp"), (1, 2, "bp")]
    trials = [
        trial(n, {"variant": str(n)}, ran={"stages": stages, "replicas": replicas, "method": method})
        for n, (stages, replicas, method) in enumerate(how)
    ]
    assert scaling_of(rows_of(trials, target=False)) is None


def test_a_network_that_merely_grows_is_measured_by_its_work() -> None:
    """Four components on one stage beside five on two: each device has less work than before."""
    cuts = {1: [4], 2: [3, 2]}
    trials = [
        trial(stages, {"pipeline.stages": stages}, step_time_s=time, ran={"partition": cuts[stages]})
        for stages, time in ((1, 0.114), (2, 0.1))
    ]
    found = scaling_of(rows_of(trials, target=False))
    assert found is not None and found.kind == "growing"
    assert gains(trials)[1] == (pytest.approx(1.14 * 5 / 4), pytest.approx(1.14 * 5 / 4 / 2))


def test_a_mini_batch_that_grows_with_the_replicas_is_weak_scaling() -> None:
    trials = [
        trial(
            count, {"replicas.count": count}, step_time_s=0.1, ran={"replicas": count, "samples_per_s": 320.0 * count}
        )
        for count in (1, 2)
    ]
    found = scaling_of(rows_of(trials, target=False))
    assert found is not None and found.kind == "weak"
    assert gains(trials)[1] == (2.0, 1.0)


def test_stages_and_replicas_are_measured_over_the_fewest_devices() -> None:
    times = {(1, 1): 0.1, (2, 1): 0.06, (1, 2): 0.08, (2, 2): 0.05}
    trials = [
        trial(
            number,
            {"pipeline.stages": stages, "replicas.count": replicas},
            step_time_s=time,
            ran={"replicas": replicas, "partition": [4 // stages] * stages, "samples_per_s": 8 / time},
        )
        for number, ((stages, replicas), time) in enumerate(times.items())
    ]
    found = scaling_of(rows_of(trials, target=False))
    assert found is not None and found.devices == "devices"
    assert [efficiency for _, efficiency in gains(trials)] == pytest.approx([1.0, 0.1 / 0.06 / 2, 0.1 / 0.08 / 2, 0.5])


def test_gains_are_ratios_of_means_with_a_deviation() -> None:
    times = {1: (0.09, 0.1, 0.11), 2: (0.05, 0.06, 0.07)}
    trials = [
        trial(
            3 * stages + seed, {"pipeline.stages": stages}, seed=seed, step_time_s=time, ran={"samples_per_s": 8 / time}
        )
        for stages, of_seeds in times.items()
        for seed, time in enumerate(of_seeds)
    ]
    first, second = rows(trials)
    assert first.speed_up is not None and (first.speed_up.mean, first.speed_up.deviation) == (1.0, None)
    assert second.speed_up is not None and second.speed_up.mean == pytest.approx(0.1 / 0.06)
    relative = ((0.01 / 0.1) ** 2 + (0.01 / 0.06) ** 2) ** 0.5
    assert second.speed_up.deviation == pytest.approx(0.1 / 0.06 * relative)
    assert second.efficiency is not None and second.efficiency.deviation == pytest.approx(0.1 / 0.12 * relative)


@pytest.mark.parametrize(
    "trials",
    [
        [],
        [trial(0, {"pipeline.stages": 1})],
        [trial(0, {"a": 1}), trial(1, {"a": 2})],
        [trial(0, {"pipeline.stages": 1}), trial(1, {"pipeline.stages": 2}, status="failed", summary=None)],
    ],
)
def test_without_two_numbers_of_devices_there_is_no_scaling(trials: list[TrialRecord]) -> None:
    assert scaling_of(rows_of(trials, target=False)) is None
    assert all(gain == (None, None) for gain in gains(trials))
