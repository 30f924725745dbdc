"""Intervals of studies contain the true value as often as they say, on trials whose truth is known."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from alray.studies.confidence import (
    Confidence,
    Sampled,
    Student,
    difference,
    discoveries,
    of_best,
    of_mean,
    seed_effects,
    spread_out,
)

BEST = 5.0
STUDIES = 300


def search(generator: np.random.Generator, *, trials: int, dimensions: int, noise: float, seeds: int = 3) -> Confidence:
    """The best of a synthetic search: a bowl that is not quite a parabola, of which a part diverges."""
    best = generator.uniform(0.3, 0.7, dimensions)
    curvature = generator.uniform(2.0, 12.0, dimensions)
    away = generator.random((trials, dimensions)) - best
    value = BEST + ((away**2 + 0.8 * away**3) * curvature).sum(axis=1)
    seen = (value[:, None] + noise * generator.standard_normal((trials, seeds)))[away.sum(axis=1) < 0.3]
    known = seed_effects(seen)[0] if noise else 0.0
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


@pytest.mark.parametrize("sampling", [0.2, 1.0, 5.0])
def test_intervals_of_sampled_figures_contain_the_true_mean(sampling: float) -> None:
    """All seeds are measured on one set, whose error is a fifth to five times that of a seed's chance. Between the two,
    intervals of three seeds are a little wide."""
    generator = np.random.default_rng(0)
    found: list[Confidence] = []
    for _ in range(8 * STUDIES):
        values = BEST + sampling * generator.standard_normal() + generator.standard_normal(3)
        of_seeds = of_mean(values.tolist())
        assert of_seeds is not None
        found.append(Sampled(of_seeds, sampling**2))
    assert 0.88 <= coverage(found, BEST) <= 0.95


def test_a_sampling_error_makes_an_interval_wider() -> None:
    """Also of three seeds, where it is a small part of all chance."""
    of_seeds = Student(1.0, 0.5, 2)
    alone, sampled = of_seeds.interval, Sampled(of_seeds, 0.1).interval
    assert sampled.low < alone.low and sampled.high > alone.high
    assert Sampled(of_seeds, 0.0).interval == pytest.approx(alone)
    known = Sampled(Student(1.0, 0.0, 2), 0.25)  # of a set of 0.5
    assert known.interval == pytest.approx((1.0 - 1.6449 * 0.5, 1.0 + 1.6449 * 0.5), abs=1e-4)
    assert known.below(1.5) == pytest.approx(0.8413, abs=1e-4) and known.below(40.0) == 1.0
    assert Sampled(Student(1.0, 0.0, 2), 0.0).below(2.0) == 1.0


def test_quantiles_of_a_mean_are_those_of_tables() -> None:
    found = of_mean([1.0, 2.0, 4.0])
    assert found is not None and found.middle == pytest.approx(7 / 3)
    half = 2.919986 * (7 / 3) ** 0.5 / 3**0.5  # t of 0.95 with two degrees of freedom, in any table
    assert found.interval == pytest.approx((7 / 3 - half, 7 / 3 + half), abs=1e-5)
    assert found.below(found.interval.low) == pytest.approx(0.05)


def test_a_difference_is_distributed_as_that_of_two_independent_values() -> None:
    """Of two normal distributions, which Student's t is with many degrees of freedom."""
    left, right = Student(3.0, 0.3, 1e9), Student(1.0, 0.4, 1e9)
    found = difference(left, right)
    assert found.interval == pytest.approx((2.0 - 1.6449 * 0.5, 2.0 + 1.6449 * 0.5), abs=0.002)
    assert found.below(2.5) == pytest.approx(0.8413, abs=0.001)


def test_discoveries_are_those_of_benjamini_and_hochberg() -> None:
    """The example of their paper: at a rate of 0.05 four of fifteen; at 0.1 here nine."""
    p_values = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459]
    p_values += [0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0]
    assert discoveries(p_values) == [True] * 9 + [False] * 6
    assert discoveries([]) == [] and discoveries([0.06, 0.07]) == [True, True]


def test_rounded_values_leave_doubt() -> None:
    """Twelve settings that all reached the target at the third evaluation show no best."""
    spread = spread_out([30.0] * 12, grain=10.0)
    assert min(spread) > 25.0 and max(spread) < 35.0 and len(set(spread)) == 12
    low, high = of_best(spread, dimensions=1).interval
    assert low < high < 30.0


def test_what_a_seed_does_to_all_settings_is_no_noise_between_them() -> None:
    noise, shared = seed_effects(np.asarray([[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]]))
    assert noise == pytest.approx(0.0) and shared.tolist() == pytest.approx([-1.0, 0.0, 1.0])
