"""Intervals of studies contain the truth as often as they say, where seeds and days move all points alike."""

from __future__ import annotations

import numpy as np
import pytest

from alray.studies.series import BatchSizeSeries, critical_batch_size
from benchmarks.coverage import coverage
from benchmarks.intervals_page import fits


@pytest.mark.parametrize("kind", ["paired_seeds", "days"])
def test_nine_of_ten_intervals_contain_the_truth(kind: str) -> None:
    assert 0.85 <= coverage(kind, 200) <= 0.95


def test_one_day_says_little_of_others() -> None:
    assert coverage("one_day", 200) < 0.5


@pytest.mark.full
def test_nine_of_ten_intervals_of_critical_batch_sizes_contain_the_truth() -> None:
    assert coverage("noisy_quadratic", 40) >= 0.82


def test_a_curve_without_chance_has_its_critical_batch_size() -> None:
    """Seeds that differ by a factor at all batch sizes leave no doubt about it."""
    sizes = (16, 64, 256, 1024)
    curve = np.log(50.0 * (1.0 + 300.0 / np.asarray(sizes)))
    found = critical_batch_size(BatchSizeSeries(sizes, np.asarray([curve, curve + 0.3, curve - 0.1])))
    assert found is not None
    assert np.exp(found.middle) == pytest.approx(300.0, rel=1e-4) and found.error < 1e-4
    assert critical_batch_size(BatchSizeSeries(sizes, np.asarray([curve, curve]))) is None  # two seeds show no spread


def test_the_curve_fits_the_reference_runs_of_mlperf() -> None:
    found = fits()
    assert len(found) == 9
    assert all(fit is not None and fit.scatter < 0.1 and fit.left_out < fit.constant for fit in found.values())
