"""The engines that can run a plan: Ray actors, Ray Train's workers, or this one process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from alray.errors import RequestError, StageError
from alray.graph.graph import Graph
from alray.graph.inline import InlineGraph
from alray.plan.costs import Costs
from alray.plan.plan import Plan
from alray.probe.device_speed import SpeedTrial, train_seconds
from alray.records import EngineName
from alray.run.ray_start import require_ray_can_start
from alray.schedules.table import SCHEDULES
from alray.spec.models import Spec
from alray.stage.workload import Workload

if TYPE_CHECKING:
    from alray.graph.cluster import Bundle
    from alray.graph.placement import Placement

ALIKE = 0.1
"""Two speeds count as equal if they differ by less. Two measurements of one device differ by up to this much."""


@dataclass(frozen=True)
class StageDevices:
    """The devices that an engine has for the stages of a plan."""

    stage_speed: tuple[float, ...] = ()
    """Speed of each stage's device, relative to the device that the costs were measured on; (): all 1."""
    cores: int | None = None
    """Processors that all stages share; None: as many as on this machine."""


def settled_speeds(speeds: list[float]) -> tuple[float, ...]:
    """The speeds with those near 1 set to 1; () if all are."""
    settled = tuple(1.0 if abs(speed - 1.0) < ALIKE else speed for speed in speeds)
    return () if set(settled) == {1.0} else settled


class Engine(ABC):
    """Makes graphs for plans, and knows how many stages there is room for."""

    @abstractmethod
    def graph(self, plan: Plan) -> Graph:
        """A graph for this plan, not started."""

    def find_devices(
        self, plan: Plan, costs: Costs, trial: Callable[[], SpeedTrial], note: Callable[[str], None]
    ) -> StageDevices | None:
        """The devices that the next graph of this plan will run on; None if they are like this machine's.

        costs: as measured on this machine. trial: makes the measurement to run on other devices. note: is called with a
        line about each device that could not be measured.
        """
        return None

    @abstractmethod
    def room(self, stages: int, replicas: int) -> tuple[int, int]:
        """The largest (stages, replicas), up to those given, that the nodes alive now could hold if they were empty.

        Replicas are given up before stages, because a network may need all its stages. (0, 0) if nothing fits.
        """


class InlineEngine(Engine):
    """Runs every stage in this process. There is always room."""

    def graph(self, plan: Plan) -> Graph:
        return InlineGraph()

    def room(self, stages: int, replicas: int) -> tuple[int, int]:
        return stages, replicas


class RayEngine(Engine):
    """Runs each stage as an actor on a connected cluster."""

    def __init__(self, workload: Workload, run_token: str) -> None:
        self._workload, self._run_token = workload, run_token
        self._kept: Placement | None = None

    def graph(self, plan: Plan) -> Graph:
        from alray.graph.ray_graph import RayGraph

        return RayGraph(lambda: self._placement(plan), run_token=self._run_token)

    def _placement(self, plan: Plan) -> Placement:
        """Room for a plan: the placement that `find_devices` kept if it fits this plan, else a new one."""
        from alray.graph.placement import Placement

        bundles = _bundles(self._workload.spec, plan.stages, plan.replicas)
        kept, self._kept = self._kept, None
        if kept is not None and kept.bundles == tuple(bundles):
            return kept
        if kept is not None:
            kept.release()
        return Placement.of(bundles, self._workload.spec.resources.labels)

    def find_devices(
        self, plan: Plan, costs: Costs, trial: Callable[[], SpeedTrial], note: Callable[[str], None]
    ) -> StageDevices | None:
        from alray.graph.cluster import num_nodes

        spec = self._workload.spec
        resources = spec.resources
        if num_nodes(resources.labels) == 1 and isinstance(resources.per_stage, dict):
            return None
        try:
            self._kept = placement = self._placement(plan)
        except StageError:
            return None  # nodes were lost: the graph asks for the same room, reports the loss and is made again
        cores = None if self._workload.device.type == "cuda" else placement.cores
        if resources.stage_speed != "auto" or spec.pipeline.costs is not None:
            return StageDevices(cores=cores)
        here_s = train_seconds(costs)
        seconds = placement.train_seconds(trial(), plan.stages, note)
        speeds = [1.0 if each is None else here_s / each for each in seconds]
        # The replicas of a stage wait for the slowest of them.
        return StageDevices(settled_speeds([min(speeds[stage :: plan.stages]) for stage in range(plan.stages)]), cores)

    def room(self, stages: int, replicas: int) -> tuple[int, int]:
        from alray.graph.cluster import has_room

        spec = self._workload.spec
        fewer = [(stages, count) for count in range(replicas, 0, -1)]
        none = (0, 0)
        if isinstance(spec.resources.per_stage, dict):
            fewer += [(count, 1) for count in range(stages - 1, 0, -1)]
        else:  # each stage asks for its own resources, so fewer stages would be another request: wait for all of them
            none = (stages, replicas)
        return next((each for each in fewer if has_room(_bundles(spec, *each), spec.resources.labels)), none)


class TrainEngine(Engine):
    """Runs the replicas of one stage as Ray Train's workers on a connected cluster. DDP wants equal shares."""

    def __init__(self, workload: Workload, run_token: str) -> None:
        self._workload, self._run_token = workload, run_token

    def graph(self, plan: Plan) -> Graph:
        from alray.graph.train_graph import TrainGraph

        return TrainGraph(
            _bundles(self._workload.spec, plan.stages, plan.replicas),
            run_token=self._run_token,
            labels=self._workload.spec.resources.labels,
        )

    def room(self, stages: int, replicas: int) -> tuple[int, int]:
        from alray.graph.cluster import has_room

        spec = self._workload.spec
        for count in range(replicas, 0, -1):
            bundles = _bundles(spec, stages, count)
            if spec.data.batch_size % count == 0 and has_room(bundles, spec.resources.labels):
                return stages, count
        return 0, 0


def _bundles(spec: Spec, stages: int, replicas: int) -> list[Bundle]:
    """What each stage asks of Ray, replica by replica."""
    return spec.resources.bundles(stages) * replicas


def engine_name(spec: Spec, *, inline: bool) -> EngineName:
    """The name of the engine that runs a spec, as in records and reports.

    Raises RequestError if `inline` and the spec cannot run in one process, or if Ray cannot start here.
    """
    if not inline:
        require_ray_can_start()
        return "ray_train" if spec.replicas.engine == "ray_train" else "ray"
    if spec.replicas.engine == "ray_train":
        raise RequestError(
            "`ray_train` runs in processes of Ray Train, not in this one",
            key="--inline",
            mend="leave out --inline, or set replicas.engine to graph",
        )
    if spec.replicas.sync_batch_norm and spec.replicas.count > 1:
        raise RequestError(
            "replicas in one process take turns, and would wait for ever for the batch statistics that "
            "replicas.sync_batch_norm sums over them in the middle of F",
            key="--inline",
            mend="leave out --inline, or set replicas.sync_batch_norm to false",
        )
    return "inline"


@contextmanager
def engine(
    workload: Workload, *, inline: bool, address: str | None, run_token: str, note: Callable[[str], None]
) -> Iterator[Engine]:
    """The engine for a workload. With Ray, the connection to the cluster ends with the block."""
    spec = workload.spec
    if inline:
        if SCHEDULES[spec.schedule].is_pipeline and spec.pipeline.stages > 1:
            note(
                f"in one process `{spec.schedule}` is no pipeline: the gradients of its {spec.micro_batches} "
                f"micro-batches are added up one after another, on one stage instead of {spec.pipeline.stages}"
            )
        yield InlineEngine()
        return
    from alray.graph.cluster import connect

    bundles = _bundles(spec, spec.pipeline.stages, spec.replicas.count)
    with connect(address, bundles, spec.resources.labels) as warnings:
        for warning in warnings:
            note(warning)
        made = TrainEngine if spec.replicas.engine == "ray_train" else RayEngine
        yield made(workload, run_token)
