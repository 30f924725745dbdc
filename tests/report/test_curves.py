"""The curves of a run: their rows, and how long ones are thinned out."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType

import pytest
import vl_convert
from hypothesis import given as on
from hypothesis import strategies as some

from alray.core.run_folder.records import Record
from alray.report.figure import Exhibit, library
from alray.report.folder import read_run
from alray.report.run_figures import accuracy, losses
from alray.report.thinning import thin

FINITE = some.floats(-1e6, 1e6)


def shown(given: ModuleType, tmp_path: Path, records: list[Record]) -> tuple[Exhibit, Exhibit]:
    """Losses and accuracies of a run with these records."""
    run = read_run(given.write_run(tmp_path / "run", given.example_plan(), records))
    return losses(run), accuracy(run)


def test_one_curve_for_each_component_and_loss(given: ModuleType, tmp_path: Path) -> None:
    records = [
        given.step(1, 0.1, {1: {"associated": 0.5}, 0: {"associated": 0.4, "autoencoder": 3.0}}),
        given.step(2, 0.2, {1: {"associated": 0.3}, 0: {"associated": 0.2, "autoencoder": 2.0}}),
    ]
    for record in records:  # a line of losses has the same components throughout
        record.losses[1]["autoencoder"] = math.nan
    found, _ = shown(given, tmp_path, records)
    values = {
        figure.name: [(row["series"], row["step"], row["loss"]) for row in figure.rows] for figure in found.figures
    }
    assert values == {
        "loss_associated": [
            *(("component 0", 1.0, 0.4), ("component 0", 2.0, 0.2)),
            *(("component 1", 1.0, 0.5), ("component 1", 2.0, 0.3)),
        ],
        "loss_autoencoder": [("component 0", 1.0, 3.0), ("component 0", 2.0, 2.0)],
    }
    assert found.findings == ("autoencoder loss: 2 values that are not finite left out",)


def test_accuracies_that_were_measured(given: ModuleType, tmp_path: Path) -> None:
    records = [given.evaluated(10, 1.0, None, 0.7), given.evaluated(20, 2.0, None, 0.8)]
    _, found = shown(given, tmp_path, records)
    sets, depths = ([(row["series"], row["step"], row["accuracy"]) for row in each.rows] for each in found.figures)
    assert sets == [("train", 10, 0.99), ("train", 20, 0.99), ("test", 10, 0.7), ("test", 20, 0.8)]
    assert depths == [("depth 1", 10, 0.4), ("depth 1", 20, 0.4), ("depth 2", 10, 0.7), ("depth 2", 20, 0.8)]
    assert found.tables["accuracy_per_depth"].rows[1] == ("2", "–", "–", "0.8000")


def test_thinning_takes_the_mean_of_neighbours() -> None:
    points = [(float(step), float(step * 10)) for step in range(1, 6)]
    assert thin(points, 3) == [(1.5, 15.0), (3.5, 35.0), (5.0, 50.0)]
    assert thin(points, 5) == points
    assert thin([], 5) == []


@on(some.lists(FINITE, min_size=1, max_size=200), some.integers(1, 50))
def test_thinning_keeps_order_and_range(values: list[float], limit: int) -> None:
    drawn = thin([(float(step), value) for step, value in enumerate(values)], limit)
    assert 1 <= len(drawn) <= limit
    assert [step for step, _ in drawn] == sorted({step for step, _ in drawn})
    slack = 1e-9 * max(1.0, max(map(abs, values)))
    assert all(min(values) - slack <= value <= max(values) + slack for _, value in drawn)


def test_values_that_are_not_finite_are_left_out() -> None:
    assert thin([(1, 1.0), (2, math.nan), (3, math.inf)], 9) == [(1, 1.0)]


def test_more_series_than_colours_are_told_apart_by_dashes(given: ModuleType, tmp_path: Path) -> None:
    found, _ = shown(given, tmp_path, [given.step(1, 0.1, {place: {"associated": 0.5} for place in range(18)})])
    (figure,) = found.figures
    told = {(each.colour, figure.styles[each.label]) for each in figure.series}
    assert len(told) == 18 and ("--c0", "6 4") in told


def test_of_many_evaluations_some_are_drawn_and_the_last_is_among_them(given: ModuleType, tmp_path: Path) -> None:
    records = [given.evaluated(step, float(step), 0.5, 0.7) for step in range(1, 2001)]
    _, found = shown(given, tmp_path, records)
    steps = {row["step"] for row in found.figures[0].rows}
    assert len(steps) <= 667 and max(steps) == 2000


def test_only_evaluations_by_the_metric_of_the_last_one_are_drawn(given: ModuleType, tmp_path: Path) -> None:
    """A resume may have been allowed to change the metric."""
    records = [given.evaluated(step, float(step), 0.5, 0.7) for step in range(1, 6)]
    of_other = [record.model_copy(update={"metric": "macro_f1"}) for record in records[3:]]
    _, found = shown(given, tmp_path, [*records[:3], *of_other])
    assert {row["step"] for row in found.figures[0].rows} == {4, 5}
    assert "3 evaluations by another metric left out" in found.findings


def test_the_library_is_made_once_on_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda snippet: f"'</script>';{snippet}")
    made = library.__wrapped__()
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda snippet: "")
    assert library.__wrapped__() == made == r"'\x3c/script>';window.vegaEmbed = vegaEmbed;"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "alray" / next((tmp_path / "alray").iterdir()).name))
    assert library.__wrapped__() == "", "where nothing can be kept it is made again"
