"""A graph of Ray actors, one for each stage of each replica."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import psutil
import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, OutOfMemoryError, RayError

from alray.device.out_of_memory import hint_for
from alray.errors import StageError
from alray.graph.actor import require_run_dir
from alray.graph.cluster import reason_of
from alray.graph.graph import Graph
from alray.graph.own_ray import end_if_silent, is_lost, require_not_lost
from alray.graph.processes import StageProcesses, Whereabouts, end_processes
from alray.graph.rendezvous import Meeting, MeetingPoint
from alray.stage.assignment import Assignment
from alray.stage.telemetry import StageStatus

_STARTING_S = 120.0
_LOOKING_S = 2.0
_ANSWERING_S = 0.05  # an answer takes a millisecond; a slower one is read at the next poll
_LEAVING_S = 2.0


class RayGraph(Graph):
    """Ray never restarts an actor and never repeats a call: after a failure the driver makes a new graph."""

    def __init__(
        self,
        processes: Callable[[], StageProcesses],
        *,
        run_token: str,
        keep: Callable[[StageProcesses], None] | None = None,
    ) -> None:
        """processes: gives one for each stage, replica by replica. run_token: content of the run folder's `.run`.

        keep: takes the processes of stages that all came to their end on one host; None: they are ended too.
        """
        self._begun, self._run_token, self._keep = processes, run_token, keep
        self._processes: StageProcesses | None = None
        self._actors: list[Any] = []
        self._assignments: Sequence[Assignment] = ()
        self._places: list[Whereabouts] = []
        self._polls: dict[Any, int] = {}
        self._asked: dict[int, float] = {}  # since when stages have not answered
        self._latest: dict[int, StageStatus] = {}
        self._dead: set[int] = set()

    def start(self, assignments: Sequence[Assignment]) -> None:
        self._assignments = assignments
        self._processes = self._begun()
        self._actors = list(self._processes.actors)
        self._call(list(self._processes.loaded))
        become = [
            actor.become.remote(assignment, self._run_token)
            for actor, assignment in zip(self._actors, assignments, strict=True)
        ]
        self._places = self._call(become)
        self._require_shared_run_dir()
        self._meet()

    def _meet(self) -> None:
        """Open the stores on which stages and replicas meet, and start every stage."""
        by_replica: dict[int, list[int]] = {}
        for place, assignment in enumerate(self._assignments):
            by_replica.setdefault(assignment.replica, []).append(place)
        everywhere = self._open_store(list(range(len(self._actors))), "replicas") if len(by_replica) > 1 else None
        starts = []
        for places in by_replica.values():
            own = self._open_store(places, "stages") if len(places) > 1 else None
            seats = tuple(self._places[place].seat for place in places)
            for place, column in zip(places, zip(*by_replica.values(), strict=True), strict=True):
                replica_seats = tuple(self._places[each].seat for each in column)
                starts.append(self._actors[place].start.remote(Meeting(own, everywhere, seats, replica_seats)))
        self._call(starts)

    def _open_store(self, places: list[int], whose: str) -> MeetingPoint:
        """Open a store on the first of these stages, for all of them to meet on."""
        one_host = len({self._places[place].node for place in places}) == 1
        host = "127.0.0.1" if one_host else self._places[places[0]].host
        (port,) = self._call([self._actors[places[0]].host_store.remote(host, whose)])
        return MeetingPoint(host, port, one_host)

    def _call(self, references: list[Any]) -> list[Any]:
        until_s = time.monotonic() + _STARTING_S
        while ray.wait(references, num_returns=len(references), timeout=_LOOKING_S)[1] and time.monotonic() < until_s:
            require_not_lost()
        try:
            answers: list[Any] = ray.get(references, timeout=0)
        except RayError as error:
            raise StageError(
                f"the stages could not be started: {reason_of(error)}",
                hint="see the logs of Ray on the node",
            ) from error
        return answers

    def _require_shared_run_dir(self) -> None:
        for assignment, place in zip(self._assignments, self._places, strict=True):
            require_run_dir(assignment, place)

    def poll(self, timeout_s: float) -> list[StageStatus]:
        require_not_lost()
        # Ask at the end of the time, so that the answers are fresh.
        time.sleep(max(0.0, timeout_s - _ANSWERING_S))
        asking = set(self._polls.values())
        for place, actor in enumerate(self._actors):
            if place not in asking and place not in self._dead and not self._is_finished(place):
                self._polls[actor.poll.remote()] = place
                self._asked.setdefault(place, time.monotonic())
        answered: dict[int, StageStatus] = {}
        if self._polls:
            ready, _ = ray.wait(list(self._polls), num_returns=len(self._polls), timeout=_ANSWERING_S)
            for reference in ready:
                place = self._polls.pop(reference)
                status = self._read(place, reference)
                if status is not None:
                    answered[place] = status
                    del self._asked[place]
        self._latest.update({place: replace(status, reports=()) for place, status in answered.items()})
        now = time.monotonic()
        return [self._status(place, answered, now) for place in range(len(self._actors))]

    def _is_finished(self, place: int) -> bool:
        latest = self._latest.get(place)
        return latest is not None and latest.finished

    def _read(self, place: int, reference: Any) -> StageStatus | None:
        """Return a stage's answer. None if the stage could not be reached: it counts as silent, and is polled again."""
        assignment = self._assignments[place]
        try:
            status: StageStatus = ray.get(reference)
        except ActorUnavailableError:
            return None
        except (ActorDiedError, OutOfMemoryError) as error:
            self._dead.add(place)
            where = self._places[place]
            return StageStatus(
                stage=assignment.stage,
                replica=assignment.replica,
                step=self._blank(place).step,
                progress=0,
                activity="finished",
                activity_s=0.0,
                finished=True,
                dead=True,
                error=_death(assignment, where, error),
                detail=str(error),
            )
        return status

    def _blank(self, place: int) -> StageStatus:
        assignment = self._assignments[place]
        latest = self._latest.get(place)
        if latest is not None:
            return latest
        return StageStatus(assignment.stage, assignment.replica, assignment.start.step, 0, "starting", 0.0)

    def _status(self, place: int, answered: dict[int, StageStatus], now: float) -> StageStatus:
        if place in answered:
            return answered[place]
        status = self._blank(place)
        if status.finished:
            return status
        return replace(status, silent_s=now - self._asked.get(place, now))

    def _wait_for_leaving(self, here: str) -> None:
        """Wait a moment for the processes of finished stages to end by themselves."""
        leaving = []
        for place, where in enumerate(self._places):
            if where.node == here and self._is_finished(place):
                with suppress(psutil.NoSuchProcess):
                    leaving.append(psutil.Process(where.pid))
        psutil.wait_procs(leaving, timeout=_LEAVING_S)

    def request_stop(self) -> None:
        for assignment, actor in zip(self._assignments, self._actors, strict=True):
            if assignment.stage == 0:
                actor.request_stop.remote()

    def _came_to_its_end(self) -> bool:
        """Whether every stage has finished without an error."""
        return len(self._latest) == len(self._actors) > 0 and all(
            status.finished and status.error is None for status in self._latest.values()
        )

    def _hand_on(self) -> bool:
        """Give the processes to `keep`, if there is one and they can become other stages."""
        one_host = len({place.node for place in self._places}) == 1  # gloo between hosts still waits for messages
        if self._keep is None or self._processes is None or not one_host or not self._came_to_its_end():
            return False
        try:
            self._call([actor.forget.remote() for actor in self._actors])
        except StageError:
            return False
        self._keep(self._processes)
        return True

    def close(self) -> None:
        end_if_silent()
        if not is_lost() and not self._hand_on():
            self._end()
        self._actors, self._places, self._processes = [], [], None
        self._polls.clear()

    def _end(self) -> None:
        here = ray.get_runtime_context().get_node_id()
        for place, actor in enumerate(self._actors):
            if self._is_finished(place) and place not in self._dead:
                actor.__ray_terminate__.remote()  # it has nothing left to do and ends by itself
        self._wait_for_leaving(here)
        for actor in self._actors:
            ray.kill(actor, no_restart=True)
        end_processes(self._places)
        if self._processes is not None:
            self._processes.placement.release()


def _death(assignment: Assignment, where: Whereabouts, error: RayError) -> StageError:
    """The error for a stage whose process is no more."""
    process = f"process {where.pid} on {where.host}"
    if isinstance(error, OutOfMemoryError):
        return StageError(
            f"{assignment.title} ran out of memory: Ray ended its {process}, where little was left",
            hint=hint_for(assignment.plan.schedule),
        )
    return StageError(f"{assignment.title} died ({process})")
