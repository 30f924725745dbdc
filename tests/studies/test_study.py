"""The pace of a study. Starts no run."""

from __future__ import annotations

import pytest

from alray.studies.study import seconds_left


def test_the_time_left_does_not_count_how_long_the_first_trials_took_to_start() -> None:
    assert seconds_left([60.0], 1, 9) is None
    assert seconds_left([60.0, 62.0], 1, 8) == pytest.approx(16.0)
    assert seconds_left([60.0, 62.0], 1, 0) is None


def test_the_time_left_counts_whole_rounds_of_trials_that_run_at_once() -> None:
    ends = [60.0, 60.0, 60.0, 64.0, 64.0, 64.0, 68.0]
    assert [seconds_left(ends[:done], 3, 12) for done in range(1, 8)] == [
        None,
        None,
        None,
        *[pytest.approx(12 / 3 * 4.0)] * 4,
    ]
