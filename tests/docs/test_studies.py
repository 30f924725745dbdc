"""All tables in docs/studies: that they are the results of their trials, and of a tree without changes."""

from __future__ import annotations

import math

import pytest

from alray.core.metric import ACCURACY
from alray.studies.table import table_of
from benchmarks.committed import Report, reports
from benchmarks.studies import has_changes

TEST_SAMPLES = {"digits": 360, "torchvision": 10_000}
"""Of each source of data: the handwritten digits, and the pictures of clothes."""


@pytest.fixture(scope="module")
def committed() -> dict[str, Report]:
    return {report.name: report for report in reports()}


def test_the_tables_are_the_results_of_their_trials(committed: dict[str, Report]) -> None:
    """So that what is computed of them is what the study would say."""
    report = committed["methods"]
    study = report.loaded.study
    made = table_of(report.results.rows, target=study.target is not None).csv.splitlines()
    kept = (report.folder / "tables" / "points.csv").read_text(encoding="utf-8").splitlines()
    assert made == kept


def test_no_report_is_of_a_tree_with_changes(committed: dict[str, Report]) -> None:
    assert [name for name, report in committed.items() if has_changes(report.page.read_text(encoding="utf-8"))] == []


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
