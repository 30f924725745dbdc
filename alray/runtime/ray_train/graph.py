"""A graph of Ray Train workers: one stage, with a replica in each worker. torch's DDP averages their gradients."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import OutOfMemoryError, RayActorError, RayError

from alray.core.errors import PlanError, StageError
from alray.runtime.cluster.nodes import Bundle, reason_of
from alray.runtime.cluster.room import wait_for_room
from alray.runtime.graph.graph import Answers, Graph
from alray.runtime.graph.processes import end_processes, environment_of
from alray.runtime.local_ray.head import is_lost, require_not_lost
from alray.runtime.ray_train.trainer import STORAGE, TrainerActor, WorkerReports
from alray.runtime.stage.assignment import Assignment
from alray.runtime.stage.telemetry import StageStatus

_LOOKING_S = 0.2
_ANSWERING_S = 0.05  # an answer takes a millisecond; a slower one is read at the next poll
_ENDING_S = 20.0  # how long Ray Train may take to end its actors
_METHODS_AT_ONCE = 2  # of the trainer's actor: `fit` and one call of the driver; each worker adds one


@dataclass
class TrainGraph(Graph):
    """Ray Train starts, watches and ends the workers. It restarts none: the driver makes a new graph instead.

    On a cluster that alray attached to, one actor of Ray itself remains: the `AutoscalingCoordinator`, which Ray's
    libraries share.

    Attributes:
        bundles: resources of each worker, all equal.
        note: as for `wait_for_room`.
        run_token, labels: as for `RayGraph` and `TrainerActor`.
    """

    bundles: Sequence[Bundle]
    note: Callable[[str], None]
    run_token: str
    labels: dict[str, str]

    def __post_init__(self) -> None:
        self._assignments: Sequence[Assignment] = ()
        self._trainer: Any = None
        self._fitting: Any = None
        self._pending: Any = None
        self._latest = WorkerReports()
        self._answers = Answers()

    def start(self, assignments: Sequence[Assignment]) -> None:
        self._assignments = assignments
        self._answers = Answers(assignments)
        first = assignments[0]
        if not isinstance(first.run_dir, Path):
            raise PlanError(
                "Ray Train keeps its own files in the run folder, which it cannot do on object storage",
                key="replicas.engine",
                hint="give an --output on a disk that all nodes share, or leave out `engine: ray_train`",
            )
        self._storage = first.run_dir / STORAGE
        self._trainer = (
            ray.remote(TrainerActor)
            .options(
                name=f"{first.run_dir.name}-{self.run_token}-trainer",
                num_cpus=0,
                max_concurrency=_METHODS_AT_ONCE + len(assignments),
                max_restarts=0,
                max_task_retries=0,
            )
            .remote(
                self.bundles[0],
                self.labels,
                self._storage,
                first.plan.longest_wait_s,
            )
        )
        self._fitting = self._trainer.fit.remote(list(assignments), self.run_token)
        wait_for_room(self._workers_came, self.bundles, self.labels, self.note, whose="replicas")
        self.environment = environment_of(list(self._latest.locations.values()), self.note)

    def _workers_came(self) -> bool:
        """Whether all workers have reported."""
        require_not_lost()
        time.sleep(_LOOKING_S)
        self._read_reports()
        if self._latest.ended:
            raise self._ended()
        return len(self._latest.locations) == len(self._assignments)

    def poll(self, timeout_s: float) -> list[StageStatus]:
        require_not_lost()
        time.sleep(max(0.0, timeout_s - _ANSWERING_S))
        self._read_reports()
        return statuses_of(replace(self._latest, statuses=self._answers.statuses()), self._assignments, self._ended)

    def _read_reports(self) -> None:
        """Ask the trainer what the workers reported, unless an earlier request is still open."""
        if self._pending is None:
            self._pending = self._trainer.take.remote()
        ready, _ = ray.wait([self._pending], timeout=_ANSWERING_S)
        if not ready:
            return
        pending, self._pending = self._pending, None
        try:
            self._latest = ray.get(pending)
        except (RayActorError, OutOfMemoryError) as error:
            message = f"the process of its trainer died: {reason_of(error)}"
            self._latest = replace(self._latest, message=message, ended=True)
            return
        for replica, status in enumerate(self._latest.statuses):
            self._answers.take(replica, status)

    def _ended(self) -> StageError:
        message: RayError | str = self._latest.message
        if not message:
            try:
                ray.get(self._fitting)
            except RayError as error:
                message = error
        return ended_early(message or "no message")

    def request_stop(self) -> None:
        self._trainer.instruct.remote("stop")

    def close(self) -> None:
        if self._trainer is None:
            return
        if not is_lost():
            self._end()
        self._trainer = None
        shutil.rmtree(self._storage, ignore_errors=True)

    def _end(self) -> None:
        """End the workers first, so that Ray Train ends by itself and frees their resources; then end its trainer."""
        if self._latest.locations:
            if not all(status.finished for status in self._latest.statuses):
                self._trainer.instruct.remote("end")
                end_processes(list(self._latest.locations.values()))
            ray.wait([self._fitting], timeout=_ENDING_S)
        ray.kill(self._trainer, no_restart=True)
        end_processes(list(self._latest.locations.values()))


def ended_early(message: RayError | str) -> StageError:
    """The error for a trainer that ended before its workers did, with its message."""
    return StageError(
        f"Ray Train ended before its workers did: {reason_of(message)}", hint="see the logs of Ray on the node"
    )


def statuses_of(
    latest: WorkerReports, assignments: Sequence[Assignment], ended: Callable[[], StageError]
) -> list[StageStatus]:
    """The status of each replica, as the driver reads it from the reports of the workers and the trainer.

    Args:
        ended: the error of the trainer, asked for where it ended and no worker is at fault.
    """
    statuses = []
    for assignment in assignments:
        replica = assignment.replica
        status = latest.statuses[replica]
        if replica in latest.dead and not status.finished:
            where = latest.locations[replica]
            error = StageError(f"{assignment.title} died (process {where.pid} on {where.host})")
            status = replace(status, finished=True, dead=True, error=error, detail=latest.dead[replica])
        statuses.append(status)
    unfinished = [index for index, status in enumerate(statuses) if not status.finished]
    if latest.ended and unfinished and not any(status.error for status in statuses):
        index = unfinished[0]
        statuses[index] = replace(statuses[index], finished=True, dead=True, error=ended())
    return statuses
