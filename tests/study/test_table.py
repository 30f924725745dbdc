"""The rows of a study, from made-up trials."""

from __future__ import annotations

import csv
import io

import pytest

from alray.study.table import csv_of, rows_of, table_of

from .conftest import trial

ONE, TWO = {"pipeline.stages": 1}, {"pipeline.stages": 2}


def test_the_seeds_of_a_point_share_a_row() -> None:
    rows = rows_of([trial(2, TWO, validation=0.9), trial(1, ONE, validation=0.8), trial(0, ONE)], target=False)
    assert [(row.point, row.trials, row.seeds) for row in rows] == [(ONE, 2, 2), (TWO, 1, 1)]
    first = rows[0].figures["validation"]
    assert first is not None
    assert (first.mean, first.deviation) == (pytest.approx(0.65), pytest.approx(0.2121, abs=1e-4))
    second = rows[1].figures["validation"]
    assert second is not None and second.deviation is None


def test_trials_without_an_end_are_counted_and_give_no_figures() -> None:
    records = [
        trial(0, ONE, validation=0.8),
        trial(1, ONE, status="diverged", reason="the losses grew", validation=0.1),
        trial(2, ONE, status="failed", reason="no", summary=None),
        trial(3, TWO, status="failed", reason="no", summary=None),
    ]
    first, second = rows_of(records, target=False)
    assert first.statuses == {"finished": 1, "diverged": 1, "failed": 1}
    assert first.figures["validation"] is not None and first.figures["validation"].mean == 0.8
    assert (second.seeds, second.settings, set(second.figures.values())) == (0, {}, {None})


def test_a_row_shows_the_settings_that_reach_the_target_first() -> None:
    values = [{"optimizer.lr": rate} for rate in (0.1, 0.2, 0.3, 0.4)]
    steps = [(50, None), (30, 40), (60, 20), (None, None)]  # of two seeds
    records = [
        trial(2 * index + seed, ONE, index=index, values=values[index], seed=seed, steps=steps[index][seed])
        for index in range(4)
        for seed in range(2)
    ]
    (row,) = rows_of(records, target=True)
    assert (row.settings, row.seeds, row.reached) == ({"optimizer.lr": 0.2}, 2, 2)
    assert row.figures["steps_to_target"] is not None and row.figures["steps_to_target"].mean == 35
    assert row.figures["samples_to_target"] is not None and row.figures["samples_to_target"].mean == 350


def test_a_target_that_no_trial_reaches_is_shown_as_such() -> None:
    (row,) = rows_of([trial(0, ONE), trial(1, ONE)], target=True)
    assert (row.reached, row.figures["steps_to_target"]) == (0, None)
    table = table_of([row], target=True)
    assert dict(zip(table.head, table.rows[0], strict=True))["reached"] == "0 of 2"


def test_without_a_target_the_best_validation_accuracy_chooses() -> None:
    records = [trial(number, ONE, index=number, values={"a": number}, validation=0.1 * number) for number in (3, 1, 2)]
    (row,) = rows_of(records, target=False)
    assert row.settings == {"a": 3}


def test_the_csv_holds_every_figure_as_a_number() -> None:
    rows = rows_of([trial(0, {"variant": "al, fast"}, steps=20, step_time_s=None)], target=True)
    (line,) = csv.DictReader(io.StringIO(csv_of(rows)))
    assert (line["variant"], line["steps_to_target"], line["seconds_to_target"]) == ("al, fast", "20.0", "0.2")
    assert (line["step_time_s"], line["validation"], line["validation_deviation"]) == ("", "0.5", "")


def test_speed_up_is_over_the_point_with_the_fewest_stages() -> None:
    points = [{"pipeline.stages": stages, "variant": variant} for variant in ("al", "bp") for stages in (4, 2)]
    times = [0.025, 0.04, 0.1, 0.1]
    rows = rows_of(
        [trial(number, point, step_time_s=times[number]) for number, point in enumerate(points)], target=False
    )
    assert [row.speed_up for row in rows] == [pytest.approx(1.6), 1.0, 1.0, 1.0]
    assert [row.efficiency for row in rows] == [pytest.approx(0.8), 1.0, 0.5, 1.0]
    assert table_of(rows, target=False).head[-2:] == ("speed-up", "efficiency")
    assert "speed-up" not in table_of(rows_of([trial(0, {})], target=False), target=False).head
