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


@pytest.mark.parametrize(
    ("stages", "training_s", "is_said"),
    [(1, 1.0, False), (1, 0.7, True), (2, 0.7, False), (2, 0.4, True)],
)
def test_training_that_takes_less_time_than_its_stages_compute(stages: int, training_s: float, is_said: bool) -> None:
    """Ten mini-batches of 0.1 s over all stages: each computes half a second at least, if there are two."""
    for point, label in (({"variant": "al"}, "variant=al"), ({}, "the base")):
        one = trial(0, point, ran={"stages": stages}, times=times(training_s, training_s, 0.1))
        found = warnings_of(results([one]))
        assert len(found) == is_said and all("do not rely on the times" in sentence for sentence in found)
        assert all(sentence.startswith(f"trial 0 ({label}, seed ") for sentence in found)


def test_the_doubt_of_a_trial_is_that_of_its_run() -> None:
    doubtful = trial(3, {"variant": "al"}, ran={"doubts": ["stage 1 cannot be so fast"]})
    assert warnings_of(results([doubtful])) == ["trial 3 (variant=al, seed 0): stage 1 cannot be so fast"]
