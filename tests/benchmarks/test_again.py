"""Studies of times that ran again: how many of the new ratios are those that the old ones led to expect."""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from alray.config.study.load import load_study
from alray.studies.results import Results
from benchmarks.again import main, ratios
from benchmarks.committed import report_of
from benchmarks.findings_page import SPECS, kept

from ..studies.conftest import results, trial

POINTS = load_study(SPECS / "al_modes.yaml").points
"""Four."""


def measured(generator: np.random.Generator, sessions: int) -> Results:
    """Times of four points, where a session does something to all of them and a smaller thing to each."""
    trials = []
    for session in range(sessions):
        of_all, of_each = 0.1 * generator.standard_normal(), 0.03 * generator.standard_normal(4)
        for at, effect in enumerate(of_each):
            time_s = 0.01 * math.exp(of_all + effect)
            trials.append(trial(len(trials), {"pipeline.stages": at + 1}, session=session, step_time_s=time_s))
    return results(trials, sessions=sessions, measures="times")


@pytest.mark.full
@pytest.mark.parametrize(("before", "after", "expected"), [(5, 5, 0.79), (5, 20, 0.87)])
def test_new_ratios_lie_as_often_within_the_old_intervals_as_chance_has_it(
    before: int, after: int, expected: float
) -> None:
    generator = np.random.default_rng(50)
    found = [each for _ in range(150) for each in ratios(measured(generator, before), measured(generator, after))]
    assert len(found) == 900 and found[0].expected == pytest.approx(expected, abs=0.005)
    assert np.mean([each.within_interval for each in found]) == pytest.approx(expected, abs=0.05)
    assert np.mean([each.within_prediction for each in found]) == pytest.approx(0.9, abs=0.04)


def write_report(folder: Path, sessions: int, slower: float = 1.0, *, reversed_axes: bool = False) -> None:
    """The tables of a study in which point 0 takes so many times as long. Its axes may have been another way round."""
    loaded = load_study(SPECS / "al_modes.yaml", [f"sessions={sessions}"])
    (folder / "al_modes" / "tables").mkdir(parents=True)
    ran = kept(loaded.study, {"verdicts": []})
    if reversed_axes:
        ran["study"]["axes"] = {axis: values[::-1] for axis, values in ran["study"]["axes"].items()}
    (folder / "al_modes" / "verdicts.json").write_text(json.dumps(ran), encoding="utf-8")
    generator = np.random.default_rng(51)
    with (folder / "al_modes" / "tables" / "trials.csv").open("w", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["trial", *loaded.study.axes, "seed", "status", "steps", "step_time_s", "reason"])
        for each in loaded.trials:
            time_s = (0.1 + 0.001 * generator.standard_normal()) * (slower if each.point == POINTS[0] else 1.0)
            table.writerow([each.number, *each.point.values.values(), each.seed, "finished", 10, time_s, ""])


def test_reports_of_two_days_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of six ratios, the three of the point that got slower moved; the tables are otherwise equal."""
    write_report(tmp_path / "old", 5)
    write_report(tmp_path / "new", 5, slower=1.5)
    write_report(tmp_path / "once", 1)
    monkeypatch.setattr(sys, "argv", ["again", str(tmp_path / "old"), str(tmp_path / "new")])
    main()
    shown = capsys.readouterr().out.splitlines()
    assert [re.findall(r"\d+%", line) for line in shown] == [["50%", "79%", "50%", "90%"]] * 2
    monkeypatch.setattr(sys, "argv", ["again", str(tmp_path / "once"), str(tmp_path / "new")])
    with pytest.raises(SystemExit, match="no study ran in several sessions"):
        main()
    assert capsys.readouterr().out == "al_modes: left out, for it ran once\n"


def test_a_report_of_other_points_or_without_verdicts_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trial 0 of the older report is of another point than that of today."""
    write_report(tmp_path / "old", 5, reversed_axes=True)
    write_report(tmp_path / "new", 5)
    (tmp_path / "empty" / "al_modes").mkdir(parents=True)
    for new, said in (("new", "al_modes: left out, for its study has changed\n"), ("empty", "")):
        monkeypatch.setattr(sys, "argv", ["again", str(tmp_path / "old"), str(tmp_path / new)])
        with pytest.raises(SystemExit, match="no study ran in several sessions"):
            main()
        assert capsys.readouterr().out == said


def test_a_table_of_other_points_than_those_of_today_is_no_result_of_the_study(tmp_path: Path) -> None:
    write_report(tmp_path, 5)
    table = tmp_path / "al_modes" / "tables" / "trials.csv"
    assert report_of("al_modes", SPECS, tmp_path).results.rows
    table.write_text(table.read_text(encoding="utf-8").replace("sequential", "earlier"), encoding="utf-8")
    changed = report_of("al_modes", SPECS, tmp_path)
    with pytest.raises(AssertionError, match="al_modes: trial 0 is another one now"):
        _ = changed.results
