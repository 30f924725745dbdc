"""Speed-up and efficiency of made-up studies, on a growing number of stages or replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from alray.study.records import TrialRecord
from alray.study.scaling import device_efficiency, scaling_of, with_gains
from alray.study.table import Row, rows_of, table_of

from .conftest import trial


def rows(trials: Sequence[TrialRecord]) -> list[Row]:
    return with_gains(rows_of(trials, target=False))


def gains(trials: Sequence[TrialRecord]) -> list[tuple[Any, Any]]:
    return [(row.speed_up, row.efficiency) for row in rows(trials)]


def test_strong_scaling_is_over_the_point_with_the_fewest_stages() -> None:
    points = [{"pipeline.stages": stages, "variant": variant} for variant in ("al", "bp") for stages in (4, 2)]
    times = [0.025, 0.04, 0.1, 0.1]
    found = rows(
        [
            trial(number, point, step_time_s=times[number], ran={"partition": [12 // point["pipeline.stages"]]})
            for number, point in enumerate(points)
        ]
    )
    assert [row.speed_up for row in found] == [pytest.approx(1.6), 1.0, 1.0, 1.0]
    assert [row.efficiency for row in found] == [pytest.approx(0.8), 1.0, 0.5, 1.0]
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
        trial(number, {"pipeline.stages": stages}, step_time_s=time, ran=layout(stages, 3 * stages, more=more))
        for number, (stages, time) in enumerate(points.items())
    ]
    found = scaling_of(rows_of(trials, target=False))
    assert found is not None and found.weak and list(found.series) == ["all points"]
    assert gains(trials) == [(1.0, 1.0), (pytest.approx(1.6), pytest.approx(0.8)), (2.0, 0.5)]


def test_variants_that_set_stages_and_network_together_are_ordered_by_method_and_schedule() -> None:
    sizes = {"al-1": (1, "associated"), "al-2": (2, "associated"), "bp-1": (1, "bp"), "bp-2": (2, "bp")}
    trials = [
        trial(number, {"variant": name}, step_time_s=0.1 * (number + 1), ran=layout(stages, 2 * stages, method))
        for number, (name, (stages, method)) in enumerate(sizes.items())
    ]
    found = scaling_of(rows_of(trials, target=False))
    assert found is not None and found.weak
    assert {label: [place.devices for place in places] for label, places in found.series.items()} == {
        "associated, streamed": [1, 2],
        "bp, streamed": [1, 2],
    }
    assert [efficiency for _, efficiency in gains(trials)] == [1.0, 0.5, 1.0, pytest.approx(0.75)]


def test_replicas_scale_too() -> None:
    trials = [
        trial(number, {"replicas.count": count}, step_time_s=0.1 / count, ran={"replicas": count})
        for number, count in enumerate((1, 2))
    ]
    found = scaling_of(rows_of(trials, target=False))
    assert found is not None and found.devices == "replicas" and not found.weak
    assert gains(trials)[1] == (2.0, 1.0)


def test_variants_on_other_devices_alone_are_no_scaling() -> None:
    """A race has methods on one stage and on two; only one method has both."""
    how = [(1, 1, "al"), (1, 1, "bp"), (1, 2, "bp")]
    trials = [
        trial(n, {"variant": str(n)}, ran={"stages": stages, "replicas": replicas, "method": method})
        for n, (stages, replicas, method) in enumerate(how)
    ]
    assert scaling_of(rows_of(trials, target=False)) is None


def test_the_efficiency_of_devices_is_over_the_fewest_with_the_same_values() -> None:
    trials = [
        trial(
            number,
            {"data.batch_size": size, "pipeline.stages": stages, "replicas.count": replicas},
            ran={"stages": stages, "replicas": replicas, "samples_per_s": size * speed},
        )
        for number, (size, stages, replicas, speed) in enumerate(
            [(8, 1, 1, 10.0), (8, 2, 1, 18.0), (8, 2, 2, 30.0), (16, 2, 1, 20.0), (16, 1, 2, 10.0)]
        )
    ]
    found = list(device_efficiency(rows_of(trials, target=False)).values())
    assert found == pytest.approx([1.0, 0.9, 1.0, 0.5, 0.75])


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
