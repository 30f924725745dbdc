"""A graph of running stages, as the driver sees it: started, polled, stopped."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from threading import Lock

from alray.device.out_of_memory import is_out_of_memory, out_of_memory
from alray.errors import AlrayError, StageError
from alray.stage.assignment import Assignment
from alray.stage.loop import StageLoop
from alray.stage.telemetry import StageStatus, Telemetry


class Graph(ABC):
    """All stages of all replicas of one attempt of a run."""

    @abstractmethod
    def start(self, assignments: Sequence[Assignment]) -> None:
        """Bring up every stage and let it run by itself."""

    @abstractmethod
    def poll(self, timeout_s: float) -> list[StageStatus]:
        """What every stage has to say, after at most `timeout_s` seconds; reports are handed out once."""

    @abstractmethod
    def request_stop(self) -> None:
        """Ask stage 0 to stop: it finishes its mini-batch, cuts a checkpoint, and ends the run."""

    @abstractmethod
    def close(self) -> None:
        """End every stage, at once where it is still running. Nothing of the graph is left."""


class Outbox:
    """Reports of one stage on their way to the driver; filled by its threads, emptied by polls."""

    def __init__(self) -> None:
        self._reports: deque[Telemetry] = deque()
        self._lock = Lock()

    def put(self, report: Telemetry) -> None:
        with self._lock:
            self._reports.append(report)

    def take(self) -> tuple[Telemetry, ...]:
        with self._lock:
            taken = tuple(self._reports)
            self._reports.clear()
        return taken


def status_of(
    assignment: Assignment, loop: StageLoop | None, outbox: Outbox, outcome: Future[None], now_s: float
) -> StageStatus:
    """The status of a stage whose loop runs in a thread with this outcome. now_s: `time.perf_counter()`."""
    finished = outcome.done()  # asked before the reports are taken, so that a finished stage has given all of them
    error, detail = None, ""
    if finished:
        fault = outcome.exception()
        if fault is not None:
            error = as_stage_error(fault, assignment)
            detail = "".join(traceback.format_exception(fault))
    return StageStatus(
        stage=assignment.stage,
        replica=assignment.replica,
        step=loop.step if loop is not None else assignment.start.step,
        progress=loop.clock.progress if loop is not None else 0,
        activity=loop.clock.activity if loop is not None else "starting",
        activity_s=now_s - loop.clock.activity_since if loop is not None else 0.0,
        reports=outbox.take(),
        finished=finished,
        error=error,
        detail=detail,
    )


def as_stage_error(fault: BaseException, assignment: Assignment) -> AlrayError:
    """The fault as one of alray's errors; what a user's code raised is named with its stage and components."""
    if isinstance(fault, AlrayError):
        return fault
    if is_out_of_memory(fault):
        return out_of_memory(fault, assignment.plan, assignment.stage)
    plan = assignment.plan.stage_plans[assignment.stage]
    text = str(fault).strip() or "no message"
    return StageError(
        f"stage {assignment.stage} (components {plan.first} to {plan.last}) raised {type(fault).__name__}: {text}",
        mend=f"the whole traceback is in {assignment.run_dir / 'logs' / f'stage-{assignment.stage}.log'}",
    )
