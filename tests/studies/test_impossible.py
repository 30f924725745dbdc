"""Times of studies that cannot be true are reported."""

from __future__ import annotations

from typing import Any

import pytest

from alray.studies.figures import warnings_of
from alray.studies.records import Times, TrialRecord

from .conftest import results, trial


def times(training_s: float, epoch_s: float, of_parts: float) -> Times:
    parts = {"forward_s": of_parts / 2, "backward_s": of_parts / 4, "update_s": of_parts / 4}
    return Times(training_s=training_s, epoch_s=epoch_s, **parts)


def on_stages(*step_times_s: float, **fields: Any) -> list[TrialRecord]:
    """A trial on one stage, on two, ..., with these step times."""
    return [
        trial(number, {"pipeline.stages": number + 1}, step_time_s=seconds, **fields)
        for number, seconds in enumerate(step_times_s)
    ]


@pytest.mark.parametrize(
    ("step_times_s", "said"),
    [
        ((0.1, 0.05), None),
        ((0.1, 0.0495), None),  # within what separate runs differ by
        ((0.1, 0.036), "pipeline.stages=2, beside pipeline.stages=1: a speed-up of 2.78 by 2 times"),
        ((0.1, 0.06, 0.02), "pipeline.stages=3, beside pipeline.stages=1: a speed-up of 5 by 3 times"),
    ],
)
def test_a_speed_up_above_the_number_of_devices(step_times_s: tuple[float, ...], said: str | None) -> None:
    found = warnings_of(results(on_stages(*step_times_s)))
    assert found == [] if said is None else len(found) == 1 and found[0].startswith(said)


def test_an_epoch_that_is_faster_than_its_devices_can_be() -> None:
    one, two = on_stages(0.1, 0.06)
    trials = [
        one.model_copy(update={"times": times(2.8, 2.8, 0.1)}),
        two.model_copy(update={"times": times(1.0, 1.0, 0.1)}),
    ]
    (found,) = warnings_of(results(trials))
    assert found.startswith("an epoch at pipeline.stages=2, beside pipeline.stages=1: a speed-up of 2.80 by 2 times")


def test_a_short_run_whose_last_mini_batches_were_slow_is_possible() -> None:
    """Of its 10 mini-batches a part was timed after warm-up, beside another program: the average is not that of all."""
    one = trial(0, {}, times=times(0.7, 0.7, 0.1))
    assert one.summary is not None and one.summary.steps == 10
    assert warnings_of(results([one])) == []


def test_the_doubt_of_a_trial_is_that_of_its_run() -> None:
    doubtful = trial(3, {"variant": "al"}, ran={"doubts": ["stage 1 cannot be so fast"]})
    assert warnings_of(results([doubtful])) == ["trial 3 (variant=al, seed 0): stage 1 cannot be so fast"]


def test_a_doubt_that_trials_share_is_told_once() -> None:
    """Trials of a session predict by the same measurement, which other programs may have disturbed."""
    trials = [
        trial(number, {"variant": "al"}, seed=number, ran={"doubts": ["others were busy"]}) for number in (3, 4, 5)
    ]
    assert warnings_of(results(trials)) == ["trial 3 (variant=al, seed 3) and 2 other trials: others were busy"]
