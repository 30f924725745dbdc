"""A graph of running stages as the driver sees it: it starts, polls and stops them."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from threading import Lock
from types import MappingProxyType

from alray.config.user_code import own_problem
from alray.core.errors import AlrayError, StageError, UserCodeError
from alray.core.storage.appended import lies_at
from alray.core.system_errors import ran_out
from alray.runtime.device import devices
from alray.runtime.device.out_of_memory import is_out_of_memory, out_of_memory
from alray.runtime.stage.assignment import Assignment
from alray.runtime.stage.loop import StageLoop
from alray.runtime.stage.telemetry import StageStatus, Telemetry


class Graph(ABC):
    """All stages of all replicas, for one attempt of a run."""

    ends_what_hangs = True
    """Whether `close` also ends a stage that hangs. Where it cannot, that stage may continue next to those of the next
    graph, so the driver waits for it instead."""
    environment: Mapping[str, str] = MappingProxyType({})
    """`device`, `torch` and `alray` of the stages, once they have started; empty where they are in this process."""

    @abstractmethod
    def start(self, assignments: Sequence[Assignment]) -> None:
        """Start every stage. Each then runs by itself."""

    @abstractmethod
    def poll(self, timeout_s: float) -> list[StageStatus]:
        """The status of every stage, after at most `timeout_s` seconds. Each report is returned once.

        Raises StageError if what runs the stages is lost as a whole.
        """

    def paused(self, unless: Callable[[], bool]) -> AbstractContextManager[None]:
        """Around what computes in this process for the user: no stage of this process computes meanwhile, which has the
        same generators of random numbers and the same settings of torch.

        Args:
            unless: whether to go on without waiting: the stage that computes may hang, and the user stops at once.
        """
        return nullcontext()

    @abstractmethod
    def request_stop(self) -> None:
        """Ask stage 0 to stop. The run ends after its current mini-batch, with a checkpoint."""

    @abstractmethod
    def close(self) -> None:
        """End every stage at once and free its resources. The engine does it where `poll` raised StageError."""


class Outbox:
    """Reports of one stage on their way to the driver. The stage's threads fill it.

    A report stays until the driver has it: an answer to a poll may be lost on its way.
    """

    def __init__(self) -> None:
        self._reports: deque[Telemetry] = deque()
        self._removed = 0
        self._lock = Lock()

    def put(self, report: Telemetry) -> None:
        with self._lock:
            self._reports.append(report)

    def after(self, received: int) -> tuple[Telemetry, ...]:
        """All reports since the start of the stage but the first `received` ones, which the driver has."""
        with self._lock:
            for _ in range(received - self._removed):
                self._reports.popleft()
            self._removed = received
            return tuple(self._reports)


class Answers:
    """The latest status of each stage. Stages go by their index."""

    def __init__(self, assignments: Sequence[Assignment] = ()) -> None:
        self._latest = [_starting(each) for each in assignments]
        self.received = [0] * len(assignments)
        """How many reports the answers of each stage have had so far."""

    def take(self, index: int, status: StageStatus) -> None:
        """A stage has answered. Reports that were not returned yet stay before its own."""
        self.received[index] += len(status.reports)
        self._latest[index] = replace(status, reports=self._latest[index].reports + status.reports)

    def take_death(self, index: int, error: StageError, detail: str) -> None:
        """A stage is known to have died."""
        dead = replace(self._latest[index], activity="finished", finished=True, dead=True, answered=True)
        self._latest[index] = replace(dead, error=error, detail=detail)

    def statuses(self) -> list[StageStatus]:
        """The status of every stage. Each report is returned once."""
        statuses, self._latest = self._latest, [replace(each, reports=(), answered=False) for each in self._latest]
        return statuses

    def has_finished(self, index: int) -> bool:
        return self._latest[index].finished

    @property
    def all_succeeded(self) -> bool:
        """Whether there are stages, and every one has finished without an error."""
        return bool(self._latest) and all(status.finished and status.error is None for status in self._latest)


def status_of(
    assignment: Assignment,
    loop: StageLoop | None,
    outbox: Outbox,
    outcome: Future[None],
    *,
    received: int,
) -> StageStatus:
    """The status of a stage whose loop runs in a thread.

    Args:
        outcome: of the thread.
        received: how many reports of the stage the driver has.
    """
    finished = outcome.done()  # read before the reports are taken, so that no report of a finished stage is missed
    error, detail = None, ""
    if finished:
        fault = outcome.exception()
        if fault is not None:
            error = as_stage_error(fault, assignment)
            detail = "".join(traceback.format_exception(fault))
    status = _starting(assignment)
    if loop is not None:
        status = replace(
            status,
            step=loop.step,
            progress=loop.clock.progress,
            activity=loop.clock.activity,
            awaits=loop.awaited,
            first_time=loop.clock.first_time,
        )
    return replace(status, reports=outbox.after(received), finished=finished, error=error, detail=detail)


def _starting(assignment: Assignment) -> StageStatus:
    """The status of a stage that has not begun its loop."""
    return StageStatus(assignment.stage, assignment.replica, assignment.start.step, 0, "starting")


def as_stage_error(fault: BaseException, assignment: Assignment) -> AlrayError:
    """The fault as an AlrayError. For an error of a user's code it names the stage and its components."""
    if is_out_of_memory(fault):
        return out_of_memory(fault, assignment.plan, assignment.stage)
    log = lies_at(assignment.run_dir / "logs" / f"stage-{assignment.stage}.log")
    hint = devices.hint_where_not_deterministic(fault) or f"the whole traceback is in {log}"
    if isinstance(fault, UserCodeError):
        return fault.with_hint(hint)
    if isinstance(fault, AlrayError):
        return fault
    plan = assignment.plan.stage_plans[assignment.stage]
    known = ran_out(fault)
    if known is not None:
        (problem,) = known.problems
        return type(known)(f"stage {assignment.stage}: {problem.message}", file=problem.file, hint=problem.hint)
    message = f"{plan.title} raised {type(fault).__name__}: {str(fault).strip() or 'no message'}"
    own = own_problem(fault, message, hint=hint)
    return StageError(message, hint=hint) if own is None else StageError.of((own,))
