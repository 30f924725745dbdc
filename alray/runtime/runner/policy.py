"""The failure policy: from the stages' statuses to what the driver does next, and which stage is at fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from alray.core.errors import AlrayError, ChannelError, ProcessLost, StageError
from alray.runtime.stage.telemetry import StageStatus

GRACE_S = 5.0
"""Seconds that stages with a lost connection wait for Ray to report which stage died."""

FIRST_FACTOR = 8.0
"""A stage that still loads libraries, data and weights may take this many times the deadline, and so may an action of a
kind that it has not done before: code may load, compile or allocate what it needs when it is first used."""

_WAITS = ("receive_wait", "send_wait", "barrier", "all_reduce")
"""The activities in which a stage waits for others."""

_BUSY = ("compute", "data", "starting")
"""The activities in which it waits for nobody. Opening the data is none of them: the driver did so, for as long."""

_HINT = "if that is healthy, raise run.deadline_s"


@dataclass(frozen=True)
class NextStep:
    """What follows from a poll of the stages: the attempt continues, or it has ended.

    `interrupted`: the user asked to stop at once.

    Attributes:
        again: whether continuing from the last checkpoint can help.
        awaited: the sample or the mini-batch that did not come.
    """

    kind: Literal["wait", "interrupted", "finished", "failed"]
    stage: int | None = None
    error: AlrayError | None = None
    again: bool = False
    awaited: str = ""
    detail: str = ""


WAIT = NextStep("wait")


def judge(statuses: Sequence[StageStatus], *, deadline_s: float, wait_s: float, lost_since_s: float) -> NextStep:
    """Judge one poll.

    A stage that died is at fault. A stage that only lost a neighbour is not: the driver first waits for Ray to report a
    death. A stage that lost a child process (a loader worker) may continue with a new one. Any other error that a
    stage's code raised ends the run: the same bits would raise it again.

    A stage that waits on the host gives up by itself, and says for whom it has waited. One whose GPU waits for another
    GPU does not: so an attempt ends where every stage has waited for too long.

    Args:
        deadline_s: how long a stage may be silent, or busy with one action (`Plan.deadline_s`).
        wait_s: how long a stage waits for another one (`Plan.longest_wait_s`).
        lost_since_s: how long ago a stage first reported a lost neighbour (0: none has).
    """
    for status in statuses:
        if status.dead:
            return NextStep("failed", status.stage, status.error, again=True, detail=status.detail)
    for status in statuses:
        if status.error is not None and not isinstance(status.error, ChannelError):
            again = isinstance(status.error, ProcessLost)
            return NextStep("failed", status.stage, status.error, again=again, detail=status.detail)
    for status in statuses:
        if status.silent_s > deadline_s:
            error = StageError(
                f"stage {status.stage} has not answered for {status.silent_s:.0f} s (deadline {deadline_s:.0f} s): "
                "its process is stopped or its node is gone",
                hint=_HINT,
            )
            return NextStep("failed", status.stage, error, again=True)
        first = status.first_time or status.activity == "starting"
        limit_s = deadline_s * (FIRST_FACTOR if first else 1.0)
        if status.activity in _BUSY and status.activity_s > limit_s and not status.finished:
            error = StageError(f"stage {status.stage} has {_done_for(status)} (deadline {limit_s:.0f} s)", hint=_HINT)
            return NextStep("failed", status.stage, error, again=True, awaited=status.awaits)
    lost = [status for status in statuses if isinstance(status.error, ChannelError)]
    if lost and lost_since_s > GRACE_S:
        return NextStep("failed", lost[0].stage, lost[0].error, again=True, detail=lost[0].detail)
    under_way = [status for status in statuses if not status.finished]
    if under_way and all(each.activity in _WAITS and each.activity_s > wait_s + GRACE_S for each in under_way):
        since_s = min(each.activity_s for each in under_way)
        error = StageError(
            f"every stage waits for another one, and none has gone on for {since_s:.0f} s (limit {wait_s:.0f} s)",
            hint="set run.deterministic=true, or CUDA_MODULE_LOADING=EAGER, so that GPUs begin sums in one order",
        )
        return NextStep("failed", None, error, again=True)
    if all(status.finished and status.error is None for status in statuses):
        return NextStep("finished")
    return WAIT


def _done_for(status: StageStatus) -> str:
    """What a stage has done for how long."""
    if status.awaits:
        return f"waited {status.activity_s:.0f} s for {status.awaits}"
    return f"been busy with one action ({status.activity}) for {status.activity_s:.0f} s"
