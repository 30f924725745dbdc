"""The benchmark of what a trial costs: trials in a minute, from times made up here."""

from __future__ import annotations

import pytest

from benchmarks import trials


def test_trials_count_from_when_every_slot_has_had_one() -> None:
    assert trials.a_minute([8.0, 9.0, 11.0, 12.0, 14.0, 15.0]) == pytest.approx(60 * 4 / 6)
