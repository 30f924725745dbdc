"""Intervals of studies contain the true value as often as they say, on trials whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from alray.studies.confidence import Confidence, Sampled, Student, discoveries, of_mean, spread_out

BEST = 5.0
STUDIES = 300


def coverage(found: list[Confidence], truth: float) -> float:
    return float(np.mean([each.interval.low <= truth <= each.interval.high for each in found]))


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


def test_discoveries_are_those_of_benjamini_and_hochberg() -> None:
    """The example of their paper: at a rate of 0.05 four of fifteen; at 0.1 here nine."""
    p_values = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459]
    p_values += [0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0]
    assert discoveries(p_values) == [True] * 9 + [False] * 6
    assert discoveries([]) == [] and discoveries([0.06, 0.07]) == [True, True]


def test_rounded_values_leave_doubt() -> None:
    """Twelve seeds that all reached the target at the third evaluation do not agree beyond doubt."""
    spread = spread_out([30.0] * 12, grain=10.0)
    assert min(spread) > 25.0 and max(spread) < 35.0 and len(set(spread)) == 12
