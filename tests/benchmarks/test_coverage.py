"""Intervals of studies contain the truth as often as they say, where seeds and sessions move all points alike."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from alray.studies.series import BatchSizeSeries, critical_batch_size
from benchmarks.branches import WINDOW, no_worse, samples_of, smoothed
from benchmarks.coverage import coverage
from benchmarks.intervals_page import fits
from benchmarks.noise_scale import noise_scale, over_run


@pytest.mark.parametrize("kind", ["paired_seeds", "sessions"])
def test_nine_of_ten_intervals_contain_the_truth(kind: str) -> None:
    assert 0.85 <= coverage(kind, 200) <= 0.95


def test_one_session_says_little_of_others() -> None:
    assert coverage("one_session", 200) < 0.5


@pytest.mark.full
@pytest.mark.parametrize(("kind", "studies"), [("searches", 100), ("noisy_quadratic", 40)])
def test_nine_of_ten_intervals_of_searches_contain_the_truth(kind: str, studies: int) -> None:
    assert coverage(kind, studies) >= 0.82


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


def test_the_noise_scale_of_a_noisy_quadratic_is_its_critical_batch_size() -> None:
    """Half the square of x, where the gradient of one sample has the variance 200 |x|^2 over all coordinates."""
    generator = np.random.default_rng(1)
    at = generator.standard_normal(400)
    spread = np.sqrt(200.0 * (at**2).sum() / 400 / 64)
    gradients = at + spread * generator.standard_normal((128, 400))
    scale = noise_scale(torch.from_numpy(gradients), 64)
    assert scale == pytest.approx(200.0, rel=0.05) and over_run([scale] * 5, 128) == pytest.approx(scale)


def test_the_critical_batch_size_of_branches_is_the_last_that_is_no_worse_than_any_smaller_one() -> None:
    """Losses within the tolerance of their neighbours alone add up, and what follows a worse one is luck."""
    losses = {32: 0.400, 64: 0.395, 128: 0.404, 256: 0.409, 512: 0.390}
    assert no_worse(losses) == 128 and no_worse({32: 0.4, 64: None, 128: 0.4}) == 32
    assert no_worse(dict.fromkeys(losses, 0.4)) == 512
    assert smoothed(iter([0.8, 0.4, 0.4])) == pytest.approx(0.5)
    found = [{"samples": 5_000, "losses": {"linear": {32: 0.4, 64: 0.5}, "square root": {32: 0.4, 64: 0.4, 128: 0.5}}}]
    assert samples_of(found) == 5_000 + 4 * WINDOW
