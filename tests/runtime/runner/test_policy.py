"""What the driver makes of a poll."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from alray.core.errors import AlrayError, ChannelError, MessageError, NonFiniteLoss, ProcessLost, StageError
from alray.runtime.runner.driver import FIRST_FACTOR, GRACE_S, WAIT, judge
from alray.runtime.stage.telemetry import StageStatus

WELL = [StageStatus(stage, 0, 5, 40, "compute", 0.1) for stage in range(3)]
DEADLINE_S, WAIT_S = 10.0, 300.0


def verdict(statuses, lost_since_s=0.0):
    return judge(statuses, deadline_s=DEADLINE_S, wait_s=WAIT_S, lost_since_s=lost_since_s)


def with_one(stage: int, **changes):
    return [replace(status, **changes) if status.stage == stage else status for status in WELL]


def test_all_is_well() -> None:
    assert verdict(WELL) is WAIT


def test_finished_when_every_stage_is() -> None:
    assert verdict([replace(status, finished=True) for status in WELL]).kind == "finished"
    assert verdict(with_one(0, finished=True)) is WAIT


def test_the_dead_are_at_fault_and_not_those_who_lost_them() -> None:
    lost = ChannelError("edge 0->1: the neighbour is gone")
    died = StageError("stage 1 died")
    statuses = [
        replace(WELL[0], finished=True, error=lost),
        replace(WELL[1], finished=True, dead=True, error=died),
        replace(WELL[2], finished=True, error=lost),
    ]
    found = verdict(statuses, lost_since_s=99.0)
    assert (found.kind, found.stage, found.error, found.again) == ("failed", 1, died, True)


def test_who_lost_a_neighbour_waits_for_the_word() -> None:
    statuses = with_one(2, finished=True, error=ChannelError("edge 1->2: the neighbour is gone"))
    assert verdict(statuses, lost_since_s=GRACE_S - 0.1) is WAIT
    found = verdict(statuses, lost_since_s=GRACE_S + 0.1)
    assert (found.kind, found.stage, found.again) == ("failed", 2, True)


@pytest.mark.parametrize(
    "error",
    [NonFiniteLoss("component 1: the loss is nan"), MessageError("edge 1->2: a message of 9 tensors")],
    ids=["a loss", "a message"],
)
def test_what_the_same_bits_would_do_again_is_not_tried_again(error: AlrayError) -> None:
    found = verdict(with_one(1, finished=True, error=error))
    assert (found.kind, found.stage, found.again) == ("failed", 1, False)


def test_a_lost_process_of_a_stage_is_not_of_the_bits() -> None:
    lost = ProcessLost("a process that prepares mini-batches ended")
    found = verdict(with_one(0, finished=True, error=lost))
    assert (found.kind, found.stage, found.error, found.again) == ("failed", 0, lost, True)


def test_silence() -> None:
    assert verdict(with_one(1, silent_s=DEADLINE_S - 1)) is WAIT
    found = verdict(with_one(1, silent_s=DEADLINE_S + 1))
    assert (found.stage, found.again) == (1, True)
    assert str(found.error).startswith("stage 1 has not answered for 11 s (deadline 10 s): ")
    assert "run.deadline_s" in str(found.error)


@pytest.mark.parametrize(
    ("activity", "first_time", "factor"),
    [("compute", False, 1.0), ("compute", True, FIRST_FACTOR), ("starting", False, FIRST_FACTOR)],
)
def test_stuck(activity, first_time, factor) -> None:
    stage = partial(with_one, 2, activity=activity, first_time=first_time)
    assert verdict(stage(activity_s=factor * DEADLINE_S - 1)) is WAIT
    found = verdict(stage(activity_s=factor * DEADLINE_S + 1))
    assert (found.kind, found.stage, found.again) == ("failed", 2, True)
    assert str(found.error) == (
        f"stage 2 has been busy with one action ({activity}) for {factor * DEADLINE_S + 1:.0f} s "
        f"(deadline {factor * DEADLINE_S:.0f} s); if that is healthy, raise run.deadline_s"
    )


@pytest.mark.parametrize("activity", ["data", "compute"])
def test_a_sample_that_does_not_come_is_named(activity) -> None:
    """Neighbours that have given up meanwhile are not at fault. An evaluation reads within a computation."""
    statuses = with_one(0, activity=activity, activity_s=DEADLINE_S + 1, awaits="sample 7 of split `train`")
    statuses[1] = replace(WELL[1], finished=True, error=ChannelError("edge 0->1: the neighbour is gone"))
    found = verdict(statuses, lost_since_s=GRACE_S + 1)
    assert (found.kind, found.stage, found.again, found.awaited) == ("failed", 0, True, "sample 7 of split `train`")
    assert str(found.error).startswith("stage 0 has waited 11 s for sample 7 of split `train` (deadline 10 s)")


@pytest.mark.parametrize("activity", ["receive_wait", "send_wait", "barrier", "opening", "checkpoint", "between"])
def test_waiting_is_nobodys_fault(activity) -> None:
    assert verdict(with_one(2, activity=activity, activity_s=1e4)) is WAIT


def test_stages_that_all_wait_for_each_other_do_not_wait_for_ever() -> None:
    """As where operations of NCCL start in another order on another GPU: there no stage gives up by itself."""
    over = WAIT_S + GRACE_S + 1
    waiting = [
        replace(WELL[0], activity="receive_wait", activity_s=over + 5),
        replace(WELL[1], activity="all_reduce", activity_s=over),
        replace(WELL[2], finished=True),
    ]
    found = verdict(waiting)
    assert (found.kind, found.again) == ("failed", True)
    assert str(found.error).startswith(
        "every stage waits for another one, and none has gone on for 306 s (limit 300 s)"
    )
    for goes_on in ({"activity_s": WAIT_S}, {"activity": "opening"}, {"activity": "checkpoint"}):
        assert verdict([waiting[0], replace(waiting[1], **goes_on), waiting[2]]) is WAIT
