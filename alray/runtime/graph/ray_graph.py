"""A graph of Ray actors, one for each stage of each replica."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, OutOfMemoryError, RayError

from alray.core.errors import StageError
from alray.runtime.cluster.nodes import reason_of
from alray.runtime.device.out_of_memory import hint_for
from alray.runtime.graph.actor import require_run_dir
from alray.runtime.graph.graph import Answers, Graph
from alray.runtime.graph.processes import ActorLocation, StageProcesses, all_ended, end_processes, environment_of
from alray.runtime.local_ray.head import is_lost, require_not_lost
from alray.runtime.rendezvous.store import Meeting, MeetingPoint
from alray.runtime.stage.assignment import Assignment
from alray.runtime.stage.telemetry import StageStatus

_STARTING_S = 120.0
_ANSWERING_S = 0.05  # an answer takes a millisecond; a slower one is read at the next poll


@dataclass
class RayGraph(Graph):
    """Ray never restarts an actor and never repeats a call: after a failure the driver makes a new graph.

    Attributes:
        take_processes: returns one for each stage, replica by replica.
        run_token: content of the run folder's `.run`.
        note: is called with a line about stages whose versions differ.
        keep: takes the processes of stages that all succeeded on one host; None: they are ended too.
    """

    take_processes: Callable[[], StageProcesses]
    run_token: str
    note: Callable[[str], None]
    keep: Callable[[StageProcesses], None] | None = None

    def __post_init__(self) -> None:
        self._processes: StageProcesses | None = None
        self._actors: list[Any] = []
        self._assignments: Sequence[Assignment] = ()
        self._locations: list[ActorLocation] = []
        self._polls: dict[Any, int] = {}
        self._answers = Answers()

    def start(self, assignments: Sequence[Assignment]) -> None:
        self._assignments = assignments
        self._answers = Answers(assignments)
        self._processes = self.take_processes()
        self._actors = list(self._processes.actors)
        self._call(list(self._processes.loaded))
        # Ray's object store has them once for all stages. The data go with the assignment of the stage that opens them.
        objects = ray.put(assignments[0].code.objects.without("data"))
        become = [
            actor.become.remote(_without_shared(assignment), self.run_token, objects)
            for actor, assignment in zip(self._actors, assignments, strict=True)
        ]
        self._locations = self._call(become)
        for assignment, location in zip(assignments, self._locations, strict=True):
            require_run_dir(assignment, location)
        self.environment = environment_of(self._locations, self.note)
        self._meet()

    def _meet(self) -> None:
        """Open the stores on which stages and replicas meet, and start every stage."""
        plan = self._assignments[0].plan
        starts = []
        places = [location.device_location for location in self._locations]
        every = range(len(places))
        everywhere = self._open_store(every, "replicas") if plan.replicas > 1 else None
        for first in every[:: plan.stages]:
            indices = every[first : first + plan.stages]
            own = self._open_store(indices, "stages") if plan.stages > 1 else None
            of_replica = tuple(places[first : first + plan.stages])
            for index in indices:
                meeting = Meeting(own, everywhere, of_replica, tuple(places[index - first :: plan.stages]))
                starts.append(self._actors[index].call.remote("start", meeting))
        self._call(starts)

    def _open_store(self, indices: Sequence[int], whose: str) -> MeetingPoint:
        """Open a store on the first of these stages, for all of them to meet on."""
        one_host = len({self._locations[index].node for index in indices}) == 1
        host = None if one_host else self._locations[indices[0]].host
        point: MeetingPoint
        (point,) = self._call([self._actors[indices[0]].call.remote("host_store", host, whose)])
        return point

    def _call(self, references: list[Any]) -> list[Any]:
        if not all_ended(references, _STARTING_S):
            raise StageError(
                f"the stages have not started within {_STARTING_S:.0f} s: the process of one is stopped, or its node "
                "is gone"
            )
        try:
            answers: list[Any] = ray.get(references)
        except RayError as error:
            raise StageError(
                f"the stages could not be started: {reason_of(error)}",
                hint="see the logs of Ray on the node",
            ) from error
        return answers

    def poll(self, timeout_s: float) -> list[StageStatus]:
        require_not_lost()
        # Poll at the end of the time, so that the answers are fresh.
        time.sleep(max(0.0, timeout_s - _ANSWERING_S))
        pending = set(self._polls.values())
        for index, actor in enumerate(self._actors):
            if index not in pending and not self._answers.has_finished(index):
                self._polls[actor.call.remote("poll", self._answers.received[index])] = index
        if self._polls:
            ready, _ = ray.wait(list(self._polls), num_returns=len(self._polls), timeout=_ANSWERING_S)
            for reference in ready:
                self._read(self._polls.pop(reference), reference)
        return self._answers.statuses()

    def _read(self, index: int, reference: Any) -> None:
        """Take a stage's answer. A stage that could not be reached has none, and is polled again."""
        try:
            self._answers.take(index, ray.get(reference))
        except ActorUnavailableError:
            return
        except (ActorDiedError, OutOfMemoryError) as error:
            death = death_of(self._assignments[index], self._locations[index], error)
            self._answers.take_death(index, death, str(error))

    def request_stop(self) -> None:
        for assignment, actor in zip(self._assignments, self._actors, strict=True):
            if assignment.stage == 0:
                actor.call.remote("request_stop")

    def _hand_over_processes(self) -> bool:
        """Give the processes to `keep`, if there is one and they can become other stages."""
        # gloo between hosts still waits for messages.
        one_host = len({location.node for location in self._locations}) == 1
        if self.keep is None or self._processes is None or not one_host or not self._answers.all_succeeded:
            return False
        try:
            self._call([actor.forget.remote() for actor in self._actors])
        except StageError:
            return False
        self.keep(self._processes)
        return True

    def close(self) -> None:
        if not is_lost() and not self._hand_over_processes():
            self._end()
        self._actors = []
        self._locations = []
        self._processes = None
        self._polls.clear()

    def _end(self) -> None:
        for actor in self._actors:
            ray.kill(actor, no_restart=True)
        end_processes(self._locations)
        if self._processes is not None:
            self._processes.placement.release()


def _without_shared(assignment: Assignment) -> Assignment:
    """An assignment without the objects that all stages get."""
    return replace(assignment, code=assignment.code.with_objects(assignment.code.objects.alone("data")))


def death_of(assignment: Assignment, location: ActorLocation, error: RayError) -> StageError:
    """Return the error for a stage whose process has died."""
    process = f"process {location.pid} on {location.host}"
    if isinstance(error, OutOfMemoryError):
        return StageError(
            f"{assignment.title} ran out of memory: Ray ended its {process}, where little was left",
            hint=hint_for(assignment.plan.schedule),
        )
    return StageError(f"{assignment.title} died ({process})")
