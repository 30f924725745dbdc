"""What the driver makes of a poll."""

from __future__ import annotations

from dataclasses import replace

import pytest

from alray.core.errors import AlrayError, ChannelError, MessageError, NonFiniteLoss, ProcessLost, StageError
from alray.runtime.runner.driver import FIRST_FACTOR, WAIT, goes_on, judge
from alray.runtime.stage.telemetry import StageStatus

WELL = [StageStatus(stage, 0, 5, 40, "compute") for stage in range(3)]
DEADLINE_S, WAIT_S = 10.0, 300.0


def verdict(statuses, still_s=0.0):
    return judge(statuses, deadline_s=DEADLINE_S, wait_s=WAIT_S, still_s=still_s)


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
    found = verdict(statuses, still_s=99.0)
    assert (found.kind, found.stage, found.error, found.again) == ("failed", 1, died, True)


def test_who_lost_a_neighbour_waits_for_the_word() -> None:
    """Of the process that died, as long as a stage may be that; of none, where all have lost one."""
    lost = replace(WELL[2], finished=True, error=ChannelError("edge 1->2: the neighbour is gone"))
    assert verdict([*WELL[:2], lost]) is WAIT
    waiting = [replace(status, activity="send_wait") for status in WELL[:2]]
    assert verdict([*waiting, lost], still_s=DEADLINE_S - 1) is WAIT
    for statuses, still_s in (([*waiting, lost], DEADLINE_S + 1), ([lost] * 3, 0.0)):
        found = verdict(statuses, still_s=still_s)
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
    """The stages that wait for the silent one answer, and are not at fault."""
    statuses = [replace(status, activity="receive_wait") for status in with_one(1, answered=False)]
    assert verdict(statuses, still_s=DEADLINE_S - 1) is WAIT
    found = verdict(statuses, still_s=DEADLINE_S + 1)
    assert (found.stage, found.again) == (1, True)
    assert str(found.error).startswith("stage 1 has not answered for 11 s: ")
    assert "(deadline 10 s)" in str(found.error) and "run.deadline_s" in str(found.error)


@pytest.mark.parametrize(
    ("activity", "first_time", "factor"),
    [("compute", False, 1.0), ("compute", True, FIRST_FACTOR), ("starting", False, FIRST_FACTOR)],
)
def test_stuck(activity, first_time, factor) -> None:
    statuses = [replace(WELL[stage], activity="send_wait") for stage in range(2)]
    statuses.append(replace(WELL[2], activity=activity, first_time=first_time))
    assert verdict(statuses, still_s=factor * DEADLINE_S - 1) is WAIT
    found = verdict(statuses, still_s=factor * DEADLINE_S + 1)
    assert (found.kind, found.stage, found.again) == ("failed", 2, True)
    assert str(found.error) == (
        f"stage 2 has been busy with one action ({activity}) for {factor * DEADLINE_S + 1:.0f} s "
        f"(deadline {factor * DEADLINE_S:.0f} s); if that is healthy, raise run.deadline_s"
    )


@pytest.mark.parametrize("activity", ["data", "compute"])
def test_a_sample_that_does_not_come_is_named(activity) -> None:
    """Neighbours that have given up meanwhile are not at fault. An evaluation reads within a computation."""
    statuses = with_one(0, activity=activity, awaits="sample 7 of split `train`")
    statuses[1] = replace(WELL[1], finished=True, error=ChannelError("edge 0->1: the neighbour is gone"))
    found = verdict(statuses, still_s=DEADLINE_S + 1)
    assert (found.kind, found.stage, found.again, found.awaited) == ("failed", 0, True, "sample 7 of split `train`")
    assert str(found.error).startswith("stage 0 has waited 11 s for sample 7 of split `train` (deadline 10 s)")


def test_stages_that_all_wait_for_each_other_do_not_wait_for_ever() -> None:
    """As where operations of NCCL start in another order on another GPU: there no stage gives up by itself."""
    waiting = [
        replace(WELL[0], activity="receive_wait"),
        replace(WELL[1], activity="all_reduce"),
        replace(WELL[2], finished=True),
    ]
    assert verdict(waiting, still_s=WAIT_S - 1) is WAIT
    found = verdict(waiting, still_s=WAIT_S + 1)
    assert (found.kind, found.again) == ("failed", True)
    assert str(found.error).startswith(
        "every stage waits for another one, and none has gone on for 301 s (deadline 300 s)"
    )


@pytest.mark.parametrize("activity", ["opening", "checkpoint", "evaluation", "between"])
def test_what_may_take_any_time_goes_on_as_long_as_the_stage_answers(activity) -> None:
    waiting = [replace(status, activity="receive_wait") for status in WELL]
    assert not goes_on(waiting, waiting)
    assert goes_on(waiting, [replace(WELL[0], progress=41), *waiting[1:]])
    busy = replace(WELL[0], activity=activity)
    assert goes_on([busy, *waiting[1:]], [busy, *waiting[1:]])
    for other in (replace(busy, answered=False), replace(busy, finished=True)):
        assert not goes_on([other, *waiting[1:]], [other, *waiting[1:]])
