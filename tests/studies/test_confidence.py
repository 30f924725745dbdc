"""Intervals of studies contain the true value as often as they say, on trials whose truth is known."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from alray.studies.confidence import Confidence, noise_of_means, of_best, of_mean, spread_out

BEST = 5.0
STUDIES = 300


def search(generator: np.random.Generator, *, trials: int, dimensions: int, noise: float, seeds: int = 3) -> Confidence:
    """The best of a synthetic search: a bowl that is not quite a parabola, of which a part diverges."""
    best = generator.uniform(0.3, 0.7, dimensions)
    curvature = generator.uniform(2.0, 12.0, dimensions)
    away = generator.random((trials, dimensions)) - best
    value = BEST + ((away**2 + 0.8 * away**3) * curvature).sum(axis=1)
    seen = (value[:, None] + noise * generator.standard_normal((trials, seeds)))[away.sum(axis=1) < 0.3]
    known = noise_of_means(seen.tolist()) if noise else 0.0
    assert known is not None
    return of_best(seen.mean(axis=1).tolist(), dimensions=dimensions, noise=known, trials=trials)


def coverage(found: list[Confidence], truth: float) -> float:
    return float(np.mean([each.interval.low <= truth <= each.interval.high for each in found]))


@pytest.mark.full
@pytest.mark.parametrize(
    ("trials", "dimensions", "noise"), list(product((12, 20, 50, 100), (1, 2, 3), (0.0, 0.05, 0.2)))
)
def test_nine_of_ten_intervals_contain_the_true_best(trials: int, dimensions: int, noise: float) -> None:
    generator = np.random.default_rng(trials * 100 + dimensions)
    studies = [search(generator, trials=trials, dimensions=dimensions, noise=noise) for _ in range(2 * STUDIES)]
    assert 0.85 <= coverage(studies, BEST) <= 0.95


@pytest.mark.full
def test_over_many_searches_nine_of_ten_intervals_contain_the_true_best() -> None:
    generator = np.random.default_rng(3)
    kinds = list(product((12, 20, 50), (1, 2, 3), (0.0, 0.1)))
    studies = [
        search(generator, trials=trials, dimensions=dimensions, noise=noise)
        for trials, dimensions, noise in kinds * (STUDIES // len(kinds))
    ]
    assert 0.86 <= coverage(studies, BEST) <= 0.94


@pytest.mark.full
def test_more_trials_leave_less_doubt() -> None:
    generator = np.random.default_rng(1)
    widths = []
    for trials in (12, 100):
        found = [search(generator, trials=trials, dimensions=2, noise=0.05).interval for _ in range(20)]
        widths.append(np.median([high - low for low, high in found]))
    assert widths[1] < widths[0] / 2


def test_nine_of_ten_intervals_contain_the_true_mean() -> None:
    generator = np.random.default_rng(0)
    found = [of_mean((BEST + generator.standard_normal(3)).tolist()) for _ in range(4 * STUDIES)]
    assert 0.87 <= coverage([each for each in found if each is not None], BEST) <= 0.93
    assert of_mean([1.0]) is None


def test_draws_are_distributed_as_the_interval_says() -> None:
    found = of_mean([1.0, 2.0, 4.0])
    assert found is not None
    draws = found.draws(np.random.default_rng(0), 20_000)
    inside = np.mean((draws >= found.interval.low) & (draws <= found.interval.high))
    assert inside == pytest.approx(0.9, abs=0.02)
    assert found.middle == pytest.approx(7 / 3, rel=1e-3)


def test_rounded_values_leave_doubt() -> None:
    """Twelve settings that all reached the target at the third evaluation show no best."""
    spread = spread_out([30.0] * 12, grain=10.0)
    assert min(spread) > 25.0 and max(spread) < 35.0 and len(set(spread)) == 12
    low, high = of_best(spread, dimensions=1).interval
    assert low < high < 30.0


def test_one_seed_shows_no_noise() -> None:
    assert noise_of_means([[1.0], [2.0]]) is None
    assert noise_of_means([[1.0, 3.0], [2.0]]) == pytest.approx(2**0.5 / 1.5**0.5)
