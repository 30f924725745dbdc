"""The benchmark of the time to the first mini-batch: its ratios and its section, from times made up here."""

from __future__ import annotations

import json

import pytest

from benchmarks import start, tables


def test_ratios_are_within_a_repeat_and_become_a_section() -> None:
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
    said = "\n".join(tables.start(json.loads(json.dumps(result))))
    assert "| 1 | 0.20 | 9.0 | 6.0 | 1.50 | 4.0 | 1.5 |" in said
    assert "**1.20** (target: at most 1.5: yes)" in said
    assert "**0.40 s** (0.5 s: yes)" in said and "**2.5 s** of a processor beyond `import torch` (3 s: yes)" in said
