"""The engines that can run a plan: Ray actors, Ray Train's workers, or this one process.

This file imports neither torch nor Ray, so that Ray can start while the command imports torch.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from alray.config.sections.spec import Spec
from alray.core.errors import RequestError, StageError
from alray.core.run_folder.records import EngineName, Record
from alray.core.run_folder.store import mark, new_token, run_name
from alray.core.storage.location import Location
from alray.planning.prediction.costs import Costs
from alray.planning.prediction.plan import Plan
from alray.runtime.planner.stage_devices import StageDevices, rounded_speeds
from alray.runtime.runner.ray_start import require_ray_can_start

if TYPE_CHECKING:
    from alray.runtime.graph.cluster import Bundle
    from alray.runtime.graph.graph import Graph
    from alray.runtime.graph.metrics import RunMetrics
    from alray.runtime.graph.placement import Placement
    from alray.runtime.graph.processes import StageProcesses
    from alray.runtime.probe.device_speed import SpeedTest


class Engine(ABC):
    """Makes graphs for plans, and knows how many stages there is room for."""

    def __init__(self) -> None:
        self.run_token = new_token()  # see `alray.core.run_folder.store.mark`

    def close(self) -> None:  # noqa: B027 - an engine may hold nothing
        """End everything that still runs, and free what it took. A second call does nothing."""

    def wait_until_ready(self) -> None:  # noqa: B027 - an engine may be ready at once
        """Wait until nothing that was begun in the background takes processors, so that times can be measured.

        Raises what went wrong in the background.
        """

    def mark_run_dir(self, run_dir: Location) -> None:
        """Write `run_token` into the run folder. Raise PlanError if a node of a stage does not see it."""
        mark(run_dir, self.run_token)

    def record(self, record: Record) -> None:  # noqa: B027 - an engine may have nobody to tell
        """Called with every record of the run as it is written."""

    @abstractmethod
    def graph(self, plan: Plan) -> Graph:
        """A graph for this plan, not started."""

    def find_devices(
        self, plan: Plan, costs: Costs, speed_test: Callable[[], SpeedTest], note: Callable[[str], None]
    ) -> StageDevices | None:
        """The devices that the next graph of this plan will run on; None if they are like this machine's.

        Args:
            costs: as measured on this machine.
            speed_test: makes the measurement to run on other devices.
            note: is called with a line about each device that could not be measured.
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
        from alray.runtime.graph.inline import InlineGraph

        return InlineGraph()

    def room(self, stages: int, replicas: int) -> tuple[int, int]:
        return stages, replicas


_STARTING_S = 120.0
"""Longest time that the end of a command waits for the start of Ray, which gives up after a minute and a half."""


class ClusterEngine(Engine):
    """An engine on Ray, which connects to a cluster in the background."""

    def __init__(self, spec: Spec, study: Path | None = None) -> None:
        """
        Args:
            study: the folder of the study of which the run is a trial; None: of none.
        """
        super().__init__()
        self._spec = spec
        self._study = study
        # Linux ends Ray's processes with the thread that started them: this thread lives as long as the cluster.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="alray-ray")
        self._cluster = ExitStack()
        self._signals = ExitStack()
        self._connected: Future[None] = Future()
        self._address: str | None = None  # of the cluster to attach to
        self._attaches = False  # to a cluster that is there already, which may have several nodes
        self._run_name = spec.name  # until the run folder is known
        self._note: Callable[[str], None] = lambda line: None  # nobody is told before `connect`
        self._metrics: RunMetrics | None = None

    def connect(self, address: str | None, note: Callable[[str], None]) -> None:
        """Begin to connect to the cluster at this address, or to start one. Returns at once.

        Args:
            note: is called in the background with lines for the user.
        """
        from alray.runtime.graph.own_ray import import_ray
        from alray.runtime.graph.sigterm import sigterm_as_sigint

        import_ray()  # here, because two threads that import at once may wait for each other
        import ray

        self._attaches = bool(address or os.environ.get("RAY_ADDRESS") or ray.is_initialized())
        self._note = note
        self._address = address
        self._signals.enter_context(sigterm_as_sigint())
        self._connected = self._thread.submit(self._connect)

    def _connect(self) -> None:
        from alray.runtime.graph.cluster import connect

        bundles = stage_bundles(self._spec, self._spec.pipeline.stages, self._spec.replicas.count)
        connection = self._cluster.enter_context(connect(self._address, bundles, self._spec.resources.labels))
        for warning in connection.warnings:
            self._note(warning)
        if connection.own:
            self._begin_on_cluster()

    def mark_run_dir(self, run_dir: Location) -> None:
        super().mark_run_dir(run_dir)
        self._run_name = run_name(run_dir, self._study)

    def record(self, record: Record) -> None:
        """Set Ray's metrics of the run."""
        if self._metrics is None:
            from alray.runtime.graph.metrics import RunMetrics

            self._metrics = RunMetrics(self._run_name)
        self._metrics.take(record)

    def close(self) -> None:
        if wait([self._connected], timeout=_STARTING_S).not_done:
            # An interrupt within an import can leave a lock that the thread waits for. The command ends without it, and
            # the reaper ends what Ray has started.
            return
        metrics, self._metrics = self._metrics, None
        if metrics is not None:
            metrics.close()
        if not self._is_lost():
            self._end_on_cluster()
        self._cluster.close()
        self._thread.shutdown()
        self._signals.close()

    def wait_until_ready(self) -> None:
        self._connected.result()

    def _is_lost(self) -> bool:
        from alray.runtime.graph.own_ray import is_lost

        return is_lost()

    def _connect_again(self) -> None:
        """Start another Ray in place of one that is lost. Nothing is done while it is not."""
        if not self._is_lost():
            return
        self._note("starting Ray again")
        self._forget_cluster()
        self._cluster.close()
        self._connected = self._thread.submit(self._connect)
        self._connected.result()

    def _begin_on_cluster(self) -> None:
        """Called in the background as soon as a cluster of our own has started."""

    def _end_on_cluster(self) -> None:
        """Called before the connection ends: end what was begun and never used."""

    def _forget_cluster(self) -> None:
        """Called when the cluster is lost: what was begun on it is gone."""


class RayEngine(ClusterEngine):
    """Runs each stage as an actor on a connected cluster."""

    def __init__(self, spec: Spec, study: Path | None = None) -> None:
        super().__init__(spec, study)
        self._reserved: Placement | None = None
        self._begun: StageProcesses | None = None

    def _begin_on_cluster(self) -> None:
        """Begin the stages' processes, unless their devices are to be measured first, which takes the same room."""
        if self._devices_are_like_here():
            self._begun = self._begin(self._spec.pipeline.stages, self._spec.replicas.count, self._spec.name)

    def _end_on_cluster(self) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.end()
        reserved, self._reserved = self._reserved, None
        if reserved is not None:
            reserved.release()

    def _forget_cluster(self) -> None:
        self._begun = self._reserved = None

    def wait_until_ready(self) -> None:
        super().wait_until_ready()
        if self._begun is not None:
            self._begun.wait_until_loaded(self._note)

    def mark_run_dir(self, run_dir: Location) -> None:
        """It takes the room for the stages, so that only their nodes have to see the folder."""
        super().mark_run_dir(run_dir)
        if not self._attaches:
            return
        self._connected.result()
        if self._devices_are_like_here():
            return
        stages = self._spec.pipeline.stages
        self._reserved = self._placement(stage_bundles(self._spec, stages, self._spec.replicas.count), stages)
        self._reserved.require_run_dir(run_dir, self.run_token, stages)

    def graph(self, plan: Plan) -> Graph:
        from alray.runtime.graph.ray_graph import RayGraph

        return RayGraph(lambda: self._processes(plan), run_token=self.run_token, note=self._note)

    def _processes(self, plan: Plan) -> StageProcesses:
        """A process for each stage: those that were begun with the cluster, which the first plan takes, or new ones."""
        begun, self._begun = self._begun, None
        return begun or self._begin(plan.stages, plan.replicas, self._run_name)

    def _begin(self, stages: int, replicas: int, run: str) -> StageProcesses:
        """
        Args:
            run: how Ray's dashboard shows it, in the names of the actors.
        """
        return self._begin_in(self._placement(stage_bundles(self._spec, stages, replicas), stages), stages, run)

    def _begin_in(self, placement: Placement, stages: int, run: str, *, again: bool = False) -> StageProcesses:
        """
        Args:
            again: whether the processes may run another trial afterwards.
        """
        from alray.runtime.graph.processes import StageProcesses

        replicas = len(placement.bundles) // stages
        names = [
            f"{run}-{self.run_token}-replica-{replica}-stage-{stage}"
            for replica in range(replicas)
            for stage in range(stages)
        ]
        return StageProcesses.begin(placement, names, threads=self._spec.resources.threads, again=again)

    def _placement(self, bundles: list[Bundle], stages: int) -> Placement:
        """Room for replicas of so many stages: the placement that was kept if it fits, else a new one."""
        from alray.runtime.graph.placement import Placement

        reserved, self._reserved = self._reserved, None
        if reserved is not None and reserved.bundles == tuple(bundles) and reserved.is_whole:
            return reserved
        if reserved is not None:
            reserved.release()
        return Placement.of(bundles, stages, self._spec.resources.labels, self._note)

    def _devices_are_like_here(self) -> bool:
        """Whether there is nothing to measure on other devices: one node, and the same request by every stage."""
        from alray.runtime.graph.cluster import num_nodes

        resources = self._spec.resources
        return num_nodes(resources.labels) == 1 and isinstance(resources.per_stage, dict)

    def find_devices(
        self, plan: Plan, costs: Costs, speed_test: Callable[[], SpeedTest], note: Callable[[str], None]
    ) -> StageDevices | None:
        from alray.core.accelerator import kind
        from alray.runtime.device.devices import at_hand

        wanted = self._spec.resources.resolved_device
        measured_on = at_hand(wanted).type
        alike = measured_on == kind(wanted) or self._begun is not None
        if alike and self._devices_are_like_here():
            return None
        from alray.runtime.graph.links import links_of
        from alray.runtime.probe.device_speed import train_seconds

        spec, resources = self._spec, self._spec.resources
        try:
            self._reserved = placement = self._placement(stage_bundles(spec, plan.stages, plan.replicas), plan.stages)
        except StageError:
            return None  # nodes were lost: the graph asks for the same room, reports the loss and is made again
        cores = placement.cores if resources.resolved_device == "cpu" else None
        ring = (plan.stages - 1, 0) in plan.edges_between()
        links, replica_link = links_of(placement.nodes, plan.stages, note, ring=ring)
        found = StageDevices(cores=cores, nodes=placement.hosts, links=links, replica_link=replica_link)
        if resources.stage_speed != "auto" or spec.pipeline.costs is not None:
            return found
        from alray.runtime.graph.processes import IDLE_PROCESSES

        IDLE_PROCESSES.end()  # a trial before this one may have left processes, which hold the devices
        here_s = train_seconds(costs)
        seconds = placement.train_seconds(speed_test(), plan.stages, measured_on, note)
        speeds = [1.0 if each is None else here_s / each for each in seconds]
        # The replicas of a stage wait for the slowest of them.
        slowest = [min(speeds[stage :: plan.stages]) for stage in range(plan.stages)]
        return replace(found, stage_speed=rounded_speeds(slowest))

    def room(self, stages: int, replicas: int) -> tuple[int, int]:
        from alray.runtime.graph.cluster import has_room

        self._connect_again()
        spec = self._spec
        fewer = [(stages, count) for count in range(replicas, 0, -1)]
        none = (0, 0)
        if isinstance(spec.resources.per_stage, dict):
            fewer += [(count, 1) for count in range(stages - 1, 0, -1)]
        else:  # each stage asks for its own resources, so fewer stages would be another request: wait for all of them
            none = (stages, replicas)
        return next((each for each in fewer if has_room(stage_bundles(spec, *each), spec.resources.labels)), none)


class TrialEngine(RayEngine):
    """Runs the stages of a trial of a study: in the placement group that Ray Tune gave it, from a process that is
    connected already, and in the processes that the trial before left."""

    def __init__(self, spec: Spec, study: Path) -> None:
        """
        Args:
            study: its folder.
        """
        super().__init__(spec, study)
        self._connected.set_result(None)

    def graph(self, plan: Plan) -> Graph:
        from alray.runtime.graph.processes import IDLE_PROCESSES
        from alray.runtime.graph.ray_graph import RayGraph

        return RayGraph(
            lambda: self._processes(plan), run_token=self.run_token, note=self._note, keep=IDLE_PROCESSES.keep
        )

    def _begin(self, stages: int, replicas: int, run: str) -> StageProcesses:
        from alray.runtime.graph.processes import IDLE_PROCESSES

        bundles = stage_bundles(self._spec, stages, replicas)
        idle = IDLE_PROCESSES.take(bundles)
        return idle or self._begin_in(self._placement(bundles, stages), stages, run, again=True)

    def _placement(self, bundles: list[Bundle], stages: int) -> Placement:
        from alray.runtime.graph.placement import Placement

        return Placement.of_trial(bundles)

    def room(self, stages: int, replicas: int) -> tuple[int, int]:
        """The group stays as it is, and asks for the same room again if a node is lost."""
        self._connect_again()
        whole = self._placement(stage_bundles(self._spec, stages, replicas), stages).is_whole
        return (stages, replicas) if whole else (0, 0)


class TrainEngine(ClusterEngine):
    """Runs the replicas of one stage as Ray Train's workers on a connected cluster. DDP wants equal shares."""

    def graph(self, plan: Plan) -> Graph:
        from alray.runtime.graph.train_graph import TrainGraph

        return TrainGraph(
            stage_bundles(self._spec, plan.stages, plan.replicas),
            self._note,
            run_token=self.run_token,
            labels=self._spec.resources.labels,
        )

    def room(self, stages: int, replicas: int) -> tuple[int, int]:
        from alray.runtime.graph.cluster import has_room

        self._connect_again()
        spec = self._spec
        for count in range(replicas, 0, -1):
            bundles = stage_bundles(spec, stages, count)
            if spec.data.batch_size % count == 0 and has_room(bundles, spec.resources.labels):
                return stages, count
        return 0, 0


def stage_bundles(spec: Spec, stages: int, replicas: int) -> list[Bundle]:
    """The resources that each stage requests from Ray, replica by replica."""
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
            hint="leave out --inline, or set replicas.engine to graph",
        )
    if spec.replicas.sync_batch_norm and spec.replicas.count > 1:
        raise RequestError(
            "replicas in one process take turns, and would wait for ever for the batch statistics that "
            "replicas.sync_batch_norm sums over them in the middle of F",
            key="--inline",
            hint="leave out --inline, or set replicas.sync_batch_norm to false",
        )
    return "inline"


def begin_engine(
    spec: Spec, inline: bool, address: str | None, note: Callable[[str], None], study: Path | None = None
) -> Engine:
    """The engine for a spec; the caller closes it. With Ray, the connection to the cluster is made in the background.

    Raises RequestError as `engine_name`, and PlanError if this process will compile what it trains or measures, and
    cannot.

    Args:
        note: is called with lines for the user, in the background too.
        study: this run is a trial of the study in that folder: its process is connected already, and has a placement
            group.
    """
    name = engine_name(spec, inline=inline)
    if spec.run.compile and (inline or spec.pipeline.costs is None):
        from alray.models.compiled import require_compiler

        require_compiler()
    if name == "inline":
        return InlineEngine()
    if study is not None:
        return TrialEngine(spec, study)
    begun = TrainEngine(spec) if name == "ray_train" else RayEngine(spec)
    begun.connect(address, note)
    return begun
