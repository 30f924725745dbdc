"""All tables in docs/studies: which break the bounds of every run, and that their pages say so."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from alray.config.study.load import load_study, read_study_file
from alray.core.metric import ACCURACY
from alray.studies.figures import impossible_times
from alray.studies.table import TIMES, table_of
from benchmarks.committed import Report, reports
from benchmarks.findings_page import REPORTS, SPECS
from benchmarks.studies import has_changes

TEST_SAMPLES = {"digits": 360, "torchvision": 10_000}
"""Of each source of data: the handwritten digits, and the pictures of clothes."""


@pytest.fixture(scope="module")
def committed() -> dict[str, Report]:
    return {report.name: report for report in reports()}


def test_the_times_of_every_report_are_possible(committed: dict[str, Report]) -> None:
    assert len(committed) >= 15
    assert [name for name, report in committed.items() if impossible_times(report.results)] == []


def test_the_tables_are_the_results_of_their_trials(committed: dict[str, Report]) -> None:
    """So that what is computed of them is what the study would say."""
    report = committed["methods"]
    study = report.loaded.study
    made = table_of(report.results.rows, target=study.target is not None).csv.splitlines()
    kept = (report.folder / "tables" / "points.csv").read_text(encoding="utf-8").splitlines()
    assert made == kept


def test_no_report_is_of_a_tree_with_changes(committed: dict[str, Report]) -> None:
    assert [name for name, report in committed.items() if has_changes(report.page.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("folder", [SPECS, SPECS.parent])
def test_the_page_names_every_study_whose_claims_about_times_are_of_one_session(folder: Path) -> None:
    page = " ".join((REPORTS.parent / "studies.md").read_text(encoding="utf-8").split())
    (listed,) = re.findall(r"The times of ([^.]+) are of one session", page)
    studies = {path.stem: read_study_file(path) for path in folder.glob("*.yaml")}
    timed = {name for name, each in studies.items() if any(verdict.figure in TIMES for verdict in each.verdicts)}
    once = {name for name in timed if studies[name].sessions == 1}
    named = set(re.findall(r"`(\w+)`", listed))
    assert once == named & timed and all(studies[name].sessions == 1 for name in named)
    assert not any(studies[name].measures == "times" for name in once)


def test_claims_about_the_test_accuracy_have_its_sampling_error_where_it_is_larger_than_a_bound(
    committed: dict[str, Report],
) -> None:
    """A difference of two accuracies on n samples has at most the variance of a half on each of them."""
    of_a_set = []
    for name, report in committed.items():
        spec = report.loaded.spec_of(report.loaded.trials[0])
        for verdict in report.loaded.study.verdicts:
            bounds = [each for each in (verdict.above, verdict.below, verdict.published) if each is not None]
            if verdict.figure != "test" or not verdict.minus or not bounds or spec.task.measures != ACCURACY:
                continue
            samples = TEST_SAMPLES[spec.data.source]
            if abs(bounds[0]) < math.sqrt(2 * 0.25 / samples):
                of_a_set.append(name)
                assert verdict.samples == samples, f"{name}: {verdict.claim}"
    assert {"large_batch", "methods_over_cuts"} <= {*of_a_set}


def test_the_page_has_the_number_of_trials_of_every_study_for_a_cluster() -> None:
    page = (REPORTS.parent / "studies.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| [`")]
    told = {name.split("`")[1]: count.strip().replace(",", "") for _, name, _, count, *_ in rows}
    trials = {path.stem: str(len(load_study(path).trials)) for path in SPECS.parent.glob("*.yaml")}
    assert {name: count for name, count in told.items() if count} == trials
