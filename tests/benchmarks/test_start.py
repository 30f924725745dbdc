"""The benchmark of the time to the first mini-batch: its ratios, from times made up here."""

from __future__ import annotations

import pytest

from benchmarks import start


def test_ratios_are_within_a_repeat() -> None:
    times = iter([start.Start(0.2, 9.0), start.Start(0.4, 6.0), start.Start(0.3, 8.0)])
    plain = iter([6.0, 5.0, 8.0])
    result = start.measure(
        "run.steps=2",
        repeats=3,
        run=lambda *overrides: next(times),
        bare=lambda: next(plain),
        processor=lambda *arguments: 4.0 if "alray" in arguments else 1.5,
    )
    assert result["over_plain"] == pytest.approx(1.2)
    assert (result["first_line_s"], result["plan_beyond_torch_s"]) == (0.4, 2.5)
