"""The page of predictions: predicted over measured step times of the reports that measure times."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from alray.config.study.load import read_study_file
from alray.planning.prediction.basis import PREDICTED, PREDICTED_MEMORY
from benchmarks.findings_page import BESIDE, KEPT, kept
from benchmarks.predictions_page import PAGE, Setting, near_pairs, settings
from benchmarks.runs import RESULTS

STUDY = "study: scaling\nbase: ../base.yaml\naxes: {pipeline.stages: [1, 2]}\nmax_concurrent: 1\n"
TRIALS = "trial,pipeline.stages,step_time_s,predicted_step_time_s\n0,1,0.02,0.01\n1,1,0.1,0.01\n2,2,,0.01\n"
BUSY = "The machine was busy: other programs took up to 0.7 processors from 1 of 3 trials (1{more}), so their times"


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """The report of a study of two points, of which one has no step time. Other programs disturbed a trial."""
    (tmp_path / "base.yaml").touch()
    file, report = tmp_path / "specs/scaling.yaml", tmp_path / "reports/scaling"
    file.parent.mkdir()
    file.write_text(STUDY, encoding="utf-8")
    (report / "tables").mkdir(parents=True)
    (report / "tables/trials.csv").write_text(TRIALS, encoding="utf-8")
    (report / "README.md").write_text(BUSY.format(more=""), encoding="utf-8")
    (report / KEPT).write_text(json.dumps(kept(read_study_file(file), {"verdicts": []})), encoding="utf-8")
    return report


def settings_of(report: Path) -> list[Setting]:
    return settings(report.parents[1] / "specs", report.parent)


def test_a_setting_has_what_was_predicted_over_what_was_measured(report: Path) -> None:
    (setting,) = settings_of(report)
    assert setting.ratio == 0.5


def test_a_near_pair_is_in_the_order_of_the_plan_and_of_the_next_runs() -> None:
    one = Setting("scaling", "stages 1", {"1": [(0.10, 0.20), (0.10, 0.23)]})
    other = Setting("scaling", "stages 2", {"1": [(0.11, 0.22), (0.11, 0.21)]})
    far = Setting("scaling", "stages 4", {"1": [(0.9, 0.9), (0.9, 0.9)]})
    assert near_pairs([one, other, far]) == (2, 1, 0)


@pytest.mark.parametrize(("old", "new"), [("max_concurrent: 1", "max_concurrent: 2"), ("[1, 2]", "[1, 4]")])
def test_the_report_of_another_study_is_left_out(report: Path, old: str, new: str) -> None:
    study = report.parents[1] / "specs/scaling.yaml"
    study.write_text(STUDY.replace(old, new), encoding="utf-8")
    assert settings_of(report) == []


@pytest.mark.parametrize("said", [f"ran, {BESIDE}.\n", BUSY.format(more=" and 2 more")])
def test_a_report_that_was_made_beside_other_programs_is_left_out(report: Path, said: str) -> None:
    (report / "README.md").write_text(said, encoding="utf-8")
    assert settings_of(report) == []


def test_plans_say_how_sure_the_published_figures_make_them() -> None:
    """The words of a plan (basis.py), which a new page of predictions may change."""
    page = PAGE.read_text(encoding="utf-8")
    low, high = PREDICTED
    assert f"Nine in ten lie between **{low:.2f}** and **{high:.2f}**" in " ".join(page.split())
    stages = json.loads((RESULTS / "memory.json").read_text(encoding="utf-8"))["stages"]
    furthest = max(abs(each["predicted_bytes"] / each["measured_bytes"] - 1) for each in stages)
    assert math.ceil(100 * furthest) / 100 == PREDICTED_MEMORY
