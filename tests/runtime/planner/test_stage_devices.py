"""What is made of measured speeds."""

from __future__ import annotations

import pytest

from alray.runtime.planner.stage_devices import rounded_speeds


@pytest.mark.parametrize(
    ("measured", "settled"),
    [
        ([1.0, 1.0], ()),
        ([0.95, 1.08], ()),  # two measurements of one device
        ([1.0, 0.5], (1.0, 0.5)),
        ([0.93, 3.0, 1.04], (1.0, 3.0, 1.0)),
    ],
)
def test_speeds_near_one_are_one(measured: list[float], settled: tuple[float, ...]) -> None:
    assert rounded_speeds(measured) == settled
