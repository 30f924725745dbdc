"""The engines that can run a plan: Ray actors, Ray Train's workers, or this one process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from alray.errors import RequestError, StageError
from alray.graph.graph import Graph
from alray.graph.inline import InlineGraph
from alray.plan.costs import Costs
from alray.plan.plan import Plan
from alray.probe.device_speed import train_seconds
from alray.records import EngineName
from alray.run.found import Found, settled_speeds
from alray.run.job import Job
from alray.schedules.table import SCHEDULES
from alray.spec.models import Spec

if TYPE_CHECKING:
    from alray.graph.placement import Placement


class Engine(ABC):
    """Makes graphs for plans, and knows what there is room for."""

    @abstractmethod
    def graph(self, plan: Plan) -> Graph:
        """A graph for this plan, not started."""

    def find(self, plan: Plan, costs: Costs, note: Callable[[str], None]) -> Found | None:
        """What the devices are that the next graph of this plan will be on; None where they are as it was made for.

        costs: as they were measured here; note: hears what could not be found out.
        """
        return None

    @abstractmethod
    def room(self, stages: int, replicas: int) -> tuple[int, int]:
        """The most stages and replicas, up to those wanted, that there is room for now, were nothing else running.

        Replicas are given up first: the stages of one are what a network may need. (0, 0) for none.
        """


class InlineEngine(Engine):
    """Everything in this process: there is always room."""

    def graph(self, plan: Plan) -> Graph:
        return InlineGraph()

    def room(self, stages: int, replicas: int) -> tuple[int, int]:
        return stages, replicas


class RayEngine(Engine):
    """Actors on a connected cluster."""

    def __init__(self, job: Job, run_token: str) -> None:
        self._job, self._run_token = job, run_token
        self._kept: Placement | None = None

    def graph(self, plan: Plan) -> Graph:
        from alray.graph.ray_graph import RayGraph

        return RayGraph(lambda: self._placement(plan), run_token=self._run_token)

    def _placement(self, plan: Plan) -> Placement:
        """Room for a plan: what was kept since its devices were looked at, if that is for as many stages."""
        from alray.graph.placement import Placement

        bundles = self._job.bundles(plan.stages, plan.replicas)
        kept, self._kept = self._kept, None
        if kept is not None and kept.bundles == tuple(bundles):
            return kept
        if kept is not None:
            kept.release()
        return Placement.of(bundles, self._job.spec.resources.labels)

    def find(self, plan: Plan, costs: Costs, note: Callable[[str], None]) -> Found | None:
        from alray.graph.cluster import num_nodes

        resources = self._job.spec.resources
        if num_nodes(resources.labels) == 1 and isinstance(resources.per_stage, dict):
            return None
        try:
            self._kept = placement = self._placement(plan)
        except StageError:
            return None  # nodes went meanwhile: the graph, which wants the same room, will say so and be made again
        cores = None if self._job.device.type == "cuda" else placement.cores
        if resources.stage_speed != "auto" or self._job.spec.pipeline.costs is not None:
            return Found(cores=cores)
        here_s = train_seconds(costs)
        seconds = placement.train_seconds(self._job.speed_trial(), plan.stages, note)
        speeds = [1.0 if each is None else here_s / each for each in seconds]
        # A stage is as slow as the slowest of its replicas.
        return Found(settled_speeds([min(speeds[stage :: plan.stages]) for stage in range(plan.stages)]), cores)

    def room(self, stages: int, replicas: int) -> tuple[int, int]:
        from alray.graph.cluster import has_room

        fewer = [(stages, count) for count in range(replicas, 0, -1)]
        none = (0, 0)
        if isinstance(self._job.spec.resources.per_stage, dict):
            fewer += [(count, 1) for count in range(stages - 1, 0, -1)]
        else:  # each stage asks for something of its own: fewer of them is another request, so these are waited for
            none = (stages, replicas)
        labels = self._job.spec.resources.labels
        return next((each for each in fewer if has_room(self._job.bundles(*each), labels)), none)


class TrainEngine(Engine):
    """Workers of Ray Train on a connected cluster: one stage, whose replicas DDP counts all the same."""

    def __init__(self, job: Job, run_token: str) -> None:
        self._job, self._run_token = job, run_token

    def graph(self, plan: Plan) -> Graph:
        from alray.graph.train_graph import TrainGraph

        return TrainGraph(
            self._job.bundles(plan.stages, plan.replicas),
            run_token=self._run_token,
            labels=self._job.spec.resources.labels,
        )

    def room(self, stages: int, replicas: int) -> tuple[int, int]:
        from alray.graph.cluster import has_room

        labels, batch_size = self._job.spec.resources.labels, self._job.spec.data.batch_size
        for count in range(replicas, 0, -1):
            if batch_size % count == 0 and has_room(self._job.bundles(stages, count), labels):
                return stages, count
        return 0, 0


def engine_name(spec: Spec, *, inline: bool) -> EngineName:
    """What runs a spec, as records and reports call it.

    Raises RequestError where it cannot run in one process.
    """
    if not inline:
        return "ray_train" if spec.replicas.engine == "ray_train" else "ray"
    if spec.replicas.engine == "ray_train":
        raise RequestError(
            "`ray_train` is Ray Train's own processes, and none of them is this one",
            key="--inline",
            mend="leave out --inline, or set replicas.engine to graph",
        )
    if spec.replicas.sync_batch_norm and spec.replicas.count > 1:
        raise RequestError(
            "batch statistics over the replicas are a sum in the middle of F, for which replicas in one process, that "
            "take turns, would wait for ever",
            key="--inline",
            mend="leave out --inline, or set replicas.sync_batch_norm to false",
        )
    return "inline"


@contextmanager
def engine(
    job: Job, *, inline: bool, address: str | None, run_token: str, note: Callable[[str], None]
) -> Iterator[Engine]:
    """The engine; with Ray, the cluster is there for as long as the block lasts."""
    if inline:
        stages = job.spec.pipeline.stages
        if SCHEDULES[job.spec.schedule].is_pipeline and stages > 1:
            note(
                f"in one process `{job.spec.schedule}` is no pipeline: the gradients of its {job.spec.micro_batches} "
                f"micro-batches are added up one after another, on one stage instead of {stages}"
            )
        yield InlineEngine()
        return
    from alray.graph.cluster import connect

    bundles = job.bundles(job.spec.pipeline.stages, job.spec.replicas.count)
    with connect(address, bundles, job.spec.resources.labels) as cluster:
        for warning in cluster.warnings:
            note(warning)
        yield TrainEngine(job, run_token) if job.spec.replicas.engine == "ray_train" else RayEngine(job, run_token)
