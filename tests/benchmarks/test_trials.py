"""The benchmark of what a trial costs: its figures and its section, from times made up here."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import tables, trials


def entry(import_s: float, trial_s: float, a_minute: float) -> dict[str, Any]:
    """One repeat."""
    return {
        "import_s": import_s,
        "torch_s": 1.2,
        "warm": {"first_s": 2.0, "trial_s": trial_s, "mini_batch_s": 0.004},
        "rate": {"a_minute": a_minute, "ends_s": [], "steps": 700},
        "two_stages": {"first_s": 16.0, "next_s": 1.25},
    }


def test_medians_become_a_section() -> None:
    result = trials.summarised([entry(1.9, 0.3, 37.0), entry(2.5, 0.2, 36.0), entry(1.8, 0.8, 30.0)])
    said = "\n".join(tables.trials(json.loads(json.dumps(result))))
    assert "| 1 | 1.90 | 1.20 | 0.30 | 37.0 | 16.0 | 1.25 |" in said
    assert "**1.90 s** of a processor (target: at most 2.0: yes)" in said
    assert "**0.30 s**" in said
    assert "**36.0** trials end in a minute (at least 35: yes)" in said


def test_trials_count_from_when_every_slot_has_had_one() -> None:
    assert trials.a_minute([8.0, 9.0, 11.0, 12.0, 14.0, 15.0]) == pytest.approx(60 * 4 / 6)
