"""Drive a run: start a graph and poll it; if it fails, start another one from the last checkpoint.

`judge` is the failure policy: from the stages' statuses to what the driver does next, and which stage is at fault.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from alray.core.errors import AlrayError, ChannelError, ProcessLost, ReplicasDiffer, RunError, StageError
from alray.core.run_folder.records import Status, write_json
from alray.core.run_folder.store import require_not_deleted
from alray.core.storage.appended import appending
from alray.core.storage.location import Location
from alray.planning.prediction.plan import Plan
from alray.runtime.graph.graph import Graph
from alray.runtime.observer import Observer, StopRequests
from alray.runtime.options import Options
from alray.runtime.probe.other_programs import Machine, taken
from alray.runtime.runner.recorder import Recorder
from alray.runtime.stage.assignment import Assignment, Start
from alray.runtime.stage.telemetry import StageStatus
from alray.runtime.workload import Workload

FIRST_FACTOR = 8.0
"""A stage that still loads libraries, data and weights may take this many times the deadline, and so may an action of a
kind that it has not done before: code may load, compile or allocate what it needs when it is first used."""

_WAITS = ("receive_wait", "send_wait", "barrier", "all_reduce")
"""The activities in which a stage waits for others."""

_LIMITED = (*_WAITS, "compute", "data", "starting")
"""The activities that may not take any time. Opening the data is none of them: the driver did so, for as long."""

_HINT = "if that is healthy, raise run.deadline_s"
_HINT_OF_GPUS = "set run.deterministic=true, or CUDA_MODULE_LOADING=EAGER, so that GPUs begin sums in one order"


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


def judge(statuses: Sequence[StageStatus], *, deadline_s: float, wait_s: float, still_s: float) -> NextStep:
    """Judge one poll.

    A stage that died is at fault. A stage that only lost a neighbour is not: the driver first waits for Ray to report a
    death. A stage that lost a child process (a loader worker) may continue with a new one. Any other error that a
    stage's code raised ends the run: the same bits would raise it again.

    An attempt in which no stage goes on for too long has ended, whatever the reason: a process or a node is stopped,
    code hangs, a sample does not come. Edges have little room, so all stages wait soon for one that does not go on.

    Args:
        deadline_s: how long no stage may go on (`Plan.deadline_s`).
        wait_s: the same, where all of them wait for each other (`Plan.longest_wait_s`).
        still_s: how long none has gone on (`goes_on`).
    """
    for status in statuses:
        if status.dead:
            return NextStep("failed", status.stage, status.error, again=True, detail=status.detail)
    for status in statuses:
        if status.error is not None and not isinstance(status.error, ChannelError):
            again = isinstance(status.error, ProcessLost)
            return NextStep("failed", status.stage, status.error, again=again, detail=status.detail)
    under_way = [status for status in statuses if not status.finished]
    held_up = [status for status in under_way if not status.answered or status.activity not in _WAITS]
    first = any(status.first_time or status.activity == "starting" for status in held_up)
    lost = [status for status in statuses if isinstance(status.error, ChannelError)]
    limit_s = deadline_s * (FIRST_FACTOR if first else 1.0) if held_up or lost else wait_s
    if lost and not held_up and (still_s > limit_s or not under_way):
        return NextStep("failed", lost[0].stage, lost[0].error, again=True, detail=lost[0].detail)
    if under_way and still_s > limit_s:
        at_fault = min(held_up, key=lambda status: status.answered, default=None)  # one that is silent, first
        error = StageError(
            f"{_why_still(at_fault, still_s)} (deadline {limit_s:.0f} s)", hint=_HINT if at_fault else _HINT_OF_GPUS
        )
        stage, awaited = (None, "") if at_fault is None else (at_fault.stage, at_fault.awaits)
        return NextStep("failed", stage, error, again=True, awaited=awaited)
    if all(status.finished and status.error is None for status in statuses):
        return NextStep("finished")
    return WAIT


def goes_on(before: Sequence[StageStatus], now: Sequence[StageStatus]) -> bool:
    """Whether a stage has completed an action between two polls, or says that it does what may take any time."""
    return [status.progress for status in before] != [status.progress for status in now] or any(
        status.answered and not status.finished and status.activity not in _LIMITED for status in now
    )


def _why_still(at_fault: StageStatus | None, still_s: float) -> str:
    """For whom all stages wait, and since when."""
    if at_fault is None:
        return f"every stage waits for another one, and none has gone on for {still_s:.0f} s"
    stage = f"stage {at_fault.stage}"
    if not at_fault.answered:
        return f"{stage} has not answered for {still_s:.0f} s: its process is stopped or its node is gone"
    if at_fault.awaits:
        return f"{stage} has waited {still_s:.0f} s for {at_fault.awaits}"
    return f"{stage} has been busy with one action ({at_fault.activity}) for {still_s:.0f} s"


POLL_S = 0.4
"""Seconds between two polls of the stages."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended. `step` is that of the last checkpoint.

    Attributes:
        lost: it failed because a process, a node or a connection was lost too often; on other machines or later the
            same spec may come to its end.
    """

    status: Status
    step: int
    error: AlrayError | None = None
    lost: bool = False


@dataclass
class Driver:
    """Drives one run.

    Attributes:
        new_graph: makes a graph for a plan, not started.
        assign: makes the assignments of all stages for a plan and a start.
        replan: is called after a failure; it returns the plan for what is left of the cluster.
        stop_after: as in `Options`; the assignments say the same.
        started: is called with each graph that has started.
    """

    run_dir: Location
    plan: Plan
    total_steps: int
    max_failures: int
    new_graph: Callable[[Plan], Graph]
    assign: Callable[[Plan, Start], Sequence[Assignment]]
    replan: Callable[[Plan], Plan]
    recorder: Recorder
    observer: Observer
    interrupts: StopRequests
    stop_after: int | None = None
    started: Callable[[Graph], None] = lambda graph: None
    machine: Machine | None = None
    """Since the start of the stages; None where they run elsewhere, or on GPUs."""

    def run(self, start: Start) -> Outcome:
        """Run from `start` to the end.

        After a failure it continues from the last checkpoint, at most `max_failures` times without a newer checkpoint,
        and once after it waited for the same sample in vain.
        """
        failures, failed_at, awaited = 0, -1, ""
        while True:
            next_step, step = self._attempt(start)
            if next_step.kind == "finished":
                reached = self.recorder.last.step
                stopped = reached < self.total_steps and (self.interrupts.count or reached == self.stop_after)
                if stopped or self.interrupts.error is not None:
                    return self._stopped("after a checkpoint", reached, step=reached)
                early = "an evaluation reached run.stop_at" if reached < self.total_steps else None
                self.recorder.event("finished", early or "every mini-batch is done", step=reached)
                return Outcome("finished", reached)
            checkpoint = self.recorder.last.step
            if next_step.kind == "interrupted":
                return self._stopped("at once", checkpoint, step=step)
            error = next_step.error or RunError("the run failed")
            self._write_failure(next_step, error, step)
            failures = failures + 1 if checkpoint <= failed_at else 1
            failed_at = max(failed_at, checkpoint)
            again = next_step.again and (next_step.awaited == "" or next_step.awaited != awaited)
            awaited = next_step.awaited
            if not again or failures > self.max_failures:
                if again:
                    error = _given_up(error, failures, checkpoint)
                self.recorder.event("failed", str(error), step=step, stage=next_step.stage)
                return Outcome("failed", checkpoint, error, lost=again)
            if self.interrupts.count:
                return self._stopped("after a failure", checkpoint, step=checkpoint)
            start = self.recorder.last
            self.observer.note(f"{error}; continuing from mini-batch {start.step}")
            try:
                self.plan = self.replan(self.plan)
            except AlrayError as nowhere:
                self.recorder.event("failed", str(nowhere), step=step)
                return Outcome("failed", checkpoint, nowhere, lost=True)
            self.recorder.began(self.plan, start, again=True)

    def _stopped(self, when: str, checkpoint: int, *, step: int) -> Outcome:
        """How a run ends that was stopped: as failed, if an error is why."""
        error = self.interrupts.error
        if error is not None:
            self.recorder.event("failed", str(error), step=step)
            return Outcome("failed", checkpoint, error)
        self.recorder.event("interrupted", f"stopped {self.interrupts.reason}, {when}", step=step)
        return Outcome("interrupted", checkpoint)

    def _attempt(self, start: Start) -> tuple[NextStep, int]:
        """Run one graph from its start to its end; return how it ended, and its last mini-batch."""
        write_json(self.run_dir / "plan.json", self.plan.as_json())
        graph = self.new_graph(self.plan)
        stop_requested = False
        statuses: list[StageStatus] = []
        still_s = 0.0
        step = start.step
        try:
            self.recorder.begin(self.plan, start.step)
            try:
                graph.start(self.assign(self.plan, start))
                self.started(graph)
            except AlrayError as error:
                return NextStep("failed", None, error, again=isinstance(error, StageError)), step
            while True:
                before, asked_s = statuses, time.monotonic()
                try:
                    statuses = graph.poll(POLL_S)
                except StageError as error:
                    return NextStep("failed", None, error, again=True), step
                # Time in which this process itself stood still is none.
                polled_s = min(time.monotonic() - asked_s, 2 * POLL_S)
                moves = goes_on(before, statuses) or not graph.ends_what_hangs
                still_s = 0.0 if moves else still_s + polled_s
                require_not_deleted(self.run_dir)
                try:
                    for status in statuses:
                        self.recorder.take(status.reports, replica=status.replica)
                except ReplicasDiffer as error:
                    return NextStep("failed", None, error), step
                step = max(step, min(status.step for status in statuses))
                self.observer.statuses(statuses)
                next_step = judge(
                    statuses, deadline_s=self.plan.deadline_s, wait_s=self.plan.longest_wait_s, still_s=still_s
                )
                if next_step.kind != "wait":
                    self._ask_machine()  # as long as the processes of the stages are there
                    return next_step, step
                if self.interrupts.count > 1:
                    return NextStep("interrupted"), step
                if self.interrupts.count and not stop_requested:
                    stop_requested = True
                    self.observer.note(
                        f"stopping {self.interrupts.reason}, after this mini-batch and its checkpoint; "
                        "Ctrl-C now stops at once"
                    )
                    graph.request_stop()
        finally:
            graph.close()

    def _ask_machine(self) -> None:
        """Find out how many processors other programs took from the stages."""
        if self.machine is not None:
            used = self.plan.costs.threads * (1 if self.plan.in_turns else self.plan.stages * self.plan.replicas)
            self.recorder.taken_processors = taken(self.machine.other_processors(), used)

    def _write_failure(self, next_step: NextStep, error: AlrayError, step: int) -> None:
        """Append the whole traceback to the stage's log, and one line of it to the records.

        Raises `error` itself if the run folder cannot be written: what failed first is the cause to report.
        """
        try:
            if next_step.detail and next_step.stage is not None:
                log = self.run_dir / "logs" / f"stage-{next_step.stage}.log"
                log.parent.mkdir(exist_ok=True)
                with appending(log) as file:
                    file.write(next_step.detail)
            self.recorder.event("failure", str(error), step=step, stage=next_step.stage)
        except (OSError, AlrayError) as unwritten:
            self.observer.note(f"the failure could not be written to the run folder: {unwritten}")
            raise error from unwritten


def _given_up(error: AlrayError, failures: int, checkpoint: int) -> RunError:
    """The last failure of a run that gives up, with its hint and that of `run.max_failures`."""
    problem = error.problems[0]
    hints = [problem.hint, "raise run.max_failures, or correct the cause and `alray resume` the run"]
    return RunError(
        f"{replace(problem, hint=None)}; that was failure {failures} since the checkpoint at mini-batch {checkpoint}",
        hint="; ".join(hint for hint in hints if hint),
    )


def assignments(
    workload: Workload, plan: Plan, start: Start, run_dir: Location, started_wall_s: float, options: Options
) -> list[Assignment]:
    """The assignment of every stage, replica by replica.

    Args:
        started_wall_s: `time.time()` when the run began, less the time it stood still.
    """
    least_share = workload.least_share
    return [
        Assignment(
            spec=workload.spec,
            plan=plan,
            data=workload.facts,
            total_steps=workload.total_steps,
            stage=stage,
            replica=replica,
            run_dir=run_dir,
            code=workload.code if stage == 0 else workload.code.without_data(),
            started_wall_s=started_wall_s,
            start=start,
            encoders=tuple(workload.network.blocks),
            least_share=least_share,
            profile=options.profile,
            stop_after=options.stop_after,
        )
        for replica in range(plan.replicas)
        for stage in range(plan.stages)
    ]
