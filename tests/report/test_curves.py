"""Curves and axes as values."""

import math
from types import ModuleType

from hypothesis import given as on
from hypothesis import strategies as some

from alray.report.charts import Curve, axis_over, num_not_finite, spans_decades, thin, tick_label
from alray.report.run_page import accuracy_curves, loss_curves

FINITE = some.floats(-1e6, 1e6)


def test_one_curve_for_each_component_and_loss(given: ModuleType) -> None:
    records = [
        given.step(1, 0.1, {1: {"associated": 0.5}, 0: {"associated": 0.4, "autoencoder": 3.0}}),
        given.step(2, 0.2, {1: {"associated": 0.3}, 0: {"associated": 0.2, "autoencoder": 2.0}}),
    ]
    assert loss_curves(records) == {
        "associated": [Curve("component 0", ((1, 0.4), (2, 0.2))), Curve("component 1", ((1, 0.5), (2, 0.3)))],
        "autoencoder": [Curve("component 0", ((1, 3.0), (2, 2.0)))],
    }


def test_accuracies_that_were_measured(given: ModuleType) -> None:
    records = [given.evaluated(10, 1.0, None, 0.7), given.evaluated(20, 2.0, None, 0.8)]
    assert accuracy_curves(records) == [
        Curve("train", ((10, 0.99), (20, 0.99))),
        Curve("test", ((10, 0.7), (20, 0.8))),
    ]


def test_thinning_takes_the_mean_of_neighbours() -> None:
    points = [(float(step), float(step * 10)) for step in range(1, 6)]
    assert thin(points, 3) == [(1.5, 15.0), (3.5, 35.0), (5.0, 50.0)]
    assert thin(points, 5) == points
    assert thin([]) == []


@on(some.lists(FINITE, min_size=1, max_size=200), some.integers(1, 50))
def test_thinning_keeps_order_and_range(values: list[float], limit: int) -> None:
    drawn = thin([(float(step), value) for step, value in enumerate(values)], limit)
    assert 1 <= len(drawn) <= limit
    assert [step for step, _ in drawn] == sorted({step for step, _ in drawn})
    slack = 1e-9 * max(1.0, max(map(abs, values)))
    assert all(min(values) - slack <= value <= max(values) + slack for _, value in drawn)


def test_values_that_are_not_finite_are_counted_and_left_out() -> None:
    curve = Curve("component 0", ((1, 1.0), (2, math.nan), (3, math.inf)))
    assert thin(curve.points) == [(1, 1.0)]
    assert num_not_finite([curve]) == 2


@on(some.lists(FINITE, min_size=1, max_size=20))
def test_an_axis_holds_its_values_and_has_ticks_inside(values: list[float]) -> None:
    axis = axis_over(values, 0.0, 100.0)
    assert all(-1e-6 <= axis.pixel(value) <= 100 + 1e-6 for value in values)
    assert all(-1e-6 <= axis.pixel(tick) <= 100 + 1e-6 for tick in axis.ticks())
    assert 2 <= len(axis.ticks()) <= 12


def test_an_axis_by_powers_of_ten() -> None:
    axis = axis_over([0.001, 10.0], 0.0, 100.0, log=True)
    assert axis.ticks() == [0.001, 0.01, 0.1, 1.0, 10.0]
    assert spans_decades([0.01, 1.0])
    assert not spans_decades([0.1, 1.0])
    assert not spans_decades([0.0, 1.0])


def test_tick_labels_are_short() -> None:
    assert [tick_label(value) for value in (0.0, 1500.0, 0.25, 0.00002)] == ["0", "1,500", "0.25", "2e-05"]
