"""The engines that can run a plan: Ray actors, Ray Train's workers, or this one process.

This file imports neither torch nor Ray, so that Ray can start while the command imports torch.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from alray.config.sections.spec import Spec
from alray.core.errors import RequestError, StageError
from alray.core.randomness.one_at_a_time import is_inside
from alray.core.run_folder.records import EngineName
from alray.core.run_folder.store import mark, new_token, run_name
from alray.core.storage.location import Location
from alray.planning.prediction.costs import Costs
from alray.planning.prediction.plan import Plan
from alray.planning.prediction.stage_devices import StageDevices, slowest_of
from alray.runtime.cluster.connect import address_to_attach_to, connect, require_reachable
from alray.runtime.cluster.nodes import Bundle, living_nodes
from alray.runtime.cluster.room import has_room
from alray.runtime.local_ray.head import end_leading_processes, is_lost
from alray.runtime.local_ray.ray_init import import_ray
from alray.runtime.local_ray.sigterm import sigterm_as_sigint
from alray.runtime.local_ray.start import require_ray_can_start
from alray.runtime.options import Options, require_launched_once
from alray.runtime.planner.stage_devices import FindsDevices, Layout, rounded_speeds

if TYPE_CHECKING:
    from alray.runtime.cluster.placement import Placement
    from alray.runtime.graph.graph import Graph
    from alray.runtime.graph.processes import StageProcesses
    from alray.runtime.probe.device_speed import SpeedTest


class Engine(FindsDevices):
    """Makes graphs for plans, and knows how many stages there is room for."""

    name: ClassVar[EngineName]
    """As in records and reports."""
    attaches = False
    """To a cluster that is there already, which may have several nodes."""

    def __init__(self) -> None:
        self.run_token = new_token()  # see `alray.core.run_folder.store.mark`

    def close(self) -> None:
        """End everything that still runs, and free what it took. A second call does nothing."""

    def require_not_failed(self) -> None:
        """Raise what went wrong in the background so far. Returns at once."""

    def wait_until_ready(self) -> None:
        """Wait until nothing that was started in the background takes processors, so that times can be measured.

        Raises what went wrong in the background.
        """

    def mark_run_dir(self, run_dir: Location) -> None:
        """Write `run_token` into the run folder. Raise PlanError if a node of a stage does not see it."""
        mark(run_dir, self.run_token)

    @abstractmethod
    def graph(self, plan: Plan) -> Graph:
        """A graph for this plan, not started."""


_INLINE = threading.RLock()
"""Held by the thread of a run whose stages are in this process. A callback of the run may begin another one there: its
stages wait meanwhile."""


class InlineEngine(Engine):
    """Runs every stage in this process. There is always room."""

    name = "inline"

    def __init__(self, *, alone: bool) -> None:
        """Raises RequestError if such a run is under way in another thread: the settings of torch and the random
        generators are those of the whole process.

        Args:
            alone: as in `Options`.
        """
        super().__init__()
        self._alone = alone
        self._open = not is_inside() and _INLINE.acquire(blocking=False)
        if not self._open:
            raise RequestError(
                "another run computes in this process",
                key="--inline",
                hint="wait for its end, leave out --inline, or begin the run in a process of its own",
            )

    def close(self) -> None:
        if self._open:
            self._open = False
            _INLINE.release()

    def graph(self, plan: Plan) -> Graph:
        from alray.runtime.graph.inline import InlineGraph

        return InlineGraph(alone=self._alone)

    def room(self, layouts: Sequence[Layout]) -> Layout | None:
        return layouts[0]


_STARTING_S = 120.0
"""Longest time that the end of a command waits for the start of Ray, which gives up after a minute and a half."""


class ClusterEngine(Engine):
    """An engine on Ray, which connects to a cluster in the background."""

    def __init__(self, spec: Spec, note: Callable[[str], None]) -> None:
        """
        Args:
            note: is called with lines for the user, in the background too.
        """
        super().__init__()
        self._spec = spec
        self._note = note
        # Linux ends Ray's processes with the thread that started them: this thread lives as long as the cluster.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="alray-ray")
        self._cluster = ExitStack()
        self._signals = ExitStack()
        self._connected: Future[None] = Future()
        self._address: str | None = None  # of the cluster to attach to
        self._run_name = spec.name  # until the run folder is known

    def connect(self, address: str | None) -> None:
        """Begin to connect to the cluster at this address, or to start one. Returns at once.

        Raises RequestError as `require_reachable`: before the data are read, which may take long.
        """
        import_ray()  # here, because two threads that import at once may wait for each other
        import ray

        require_reachable(address)
        self.attaches = address_to_attach_to(address) is not None or ray.is_initialized()
        self._address = address
        self._signals.enter_context(sigterm_as_sigint())
        self._connected = self._thread.submit(self._connect)

    def _connect(self) -> None:
        connecting = connect(self._address, stage_bundles(self._spec), self._spec.resources.labels)
        connection = self._cluster.enter_context(connecting)
        for warning in connection.warnings:
            self._note(warning)
        if connection.own:
            self._begin_on_cluster()

    def mark_run_dir(self, run_dir: Location) -> None:
        super().mark_run_dir(run_dir)
        self._run_name = run_name(run_dir)

    def close(self) -> None:
        if wait([self._connected], timeout=_STARTING_S).not_done:
            # An interrupt within an import can leave a lock that the thread waits for. The command ends without it, and
            # the reaper ends what Ray has started.
            return
        self._end_on_cluster()
        self._cluster.close()
        self._thread.shutdown()
        self._signals.close()

    def require_not_failed(self) -> None:
        if self._connected.done():
            self._connected.result()

    def wait_until_ready(self) -> None:
        self._connected.result()

    def _connect_again(self) -> None:
        """Start another Ray in place of one that is lost, or has missed this machine. Else nothing is done."""
        if not is_lost() and (self.attaches or living_nodes()):
            return
        end_leading_processes()
        self._note("starting Ray again")
        self._end_on_cluster()
        self._cluster.close()
        self._connected = self._thread.submit(self._connect)
        self._connected.result()

    def room(self, layouts: Sequence[Layout]) -> Layout | None:
        self._connect_again()
        spec = self._spec
        return next((each for each in layouts if has_room(stage_bundles(spec, each), spec.resources.labels)), None)

    def _begin_on_cluster(self) -> None:
        """Called in the background as soon as a cluster that alray starts is up."""

    def _end_on_cluster(self) -> None:
        """Called before the connection ends, or when the cluster is lost: end what was started and never used."""


class RayEngine(ClusterEngine):
    """Runs each stage as an actor on a connected cluster."""

    name = "ray"
    _keep: Callable[[StageProcesses], None] | None = None
    """Takes the processes of stages that have ended, for the next run; None: they are ended too."""

    def __init__(self, spec: Spec, note: Callable[[str], None]) -> None:
        super().__init__(spec, note)
        self._reserved: Placement | None = None
        self._begun: StageProcesses | None = None

    def _begin_on_cluster(self) -> None:
        """Begin the stages' processes, unless their devices are to be measured first, which takes the same room."""
        if self._devices_are_like_here():
            self._begun = self._begin((self._spec.pipeline.stages, self._spec.replicas.count))

    def _end_on_cluster(self) -> None:
        begun, reserved = self._begun, self._reserved
        self._begun = self._reserved = None
        if begun is not None and not is_lost():
            begun.end()
        if reserved is not None:
            reserved.release()

    def wait_until_ready(self) -> None:
        super().wait_until_ready()
        if self._begun is not None:
            self._begun.wait_until_loaded()

    def mark_run_dir(self, run_dir: Location) -> None:
        """It takes the room for the stages, so that only their nodes have to see the folder."""
        super().mark_run_dir(run_dir)
        if not self.attaches:
            return
        self._connected.result()
        if self._devices_are_like_here():
            return
        self._reserved = self._placement(stage_bundles(self._spec))
        self._reserved.require_run_dir(run_dir, self.run_token, self._spec.pipeline.stages)

    def graph(self, plan: Plan) -> Graph:
        from alray.runtime.graph.ray_graph import RayGraph

        return RayGraph(lambda: self._processes(plan), run_token=self.run_token, note=self._note, keep=self._keep)

    def _processes(self, plan: Plan) -> StageProcesses:
        """A process for each stage: those that were started with the cluster, which the first plan takes, or new
        ones."""
        begun, self._begun = self._begun, None
        return begun or self._begin((plan.stages, plan.replicas))

    def _begin(self, layout: Layout) -> StageProcesses:
        from alray.runtime.graph.processes import StageProcesses

        stages, replicas = layout
        names = [  # as Ray's dashboard shows them
            f"{self._run_name}-{self.run_token}-replica-{replica}-stage-{stage}"
            for replica in range(replicas)
            for stage in range(stages)
        ]
        return StageProcesses.begin(
            self._placement(stage_bundles(self._spec, layout)),
            names,
            threads=self._spec.resources.threads,
            again=self._keep is not None,
            is_pipeline=self._spec.is_pipeline,
        )

    def _placement(self, bundles: list[Bundle]) -> Placement:
        """Room for replicas of so many stages: the placement that was kept if it fits, else a new one."""
        from alray.runtime.cluster.placement import Placement

        reserved, self._reserved = self._reserved, None
        if reserved is not None and reserved.bundles == tuple(bundles) and reserved.is_whole:
            return reserved
        if reserved is not None:
            reserved.release()
        return Placement.of(bundles, self._spec.resources.labels, self._note)

    def _devices_are_like_here(self) -> bool:
        """Whether there is nothing to measure on other devices: this node alone, and the same request by every
        stage."""
        import ray

        resources = self._spec.resources
        nodes = [node.id for node in living_nodes(resources.labels)]
        return nodes == [ray.get_runtime_context().get_node_id()] and isinstance(resources.per_stage, dict)

    def _are_as_measured(self) -> bool:
        """Whether the costs hold for the devices of the stages as they are."""
        from alray.core.accelerator import kind
        from alray.runtime.device.devices import at_hand

        wanted = self._spec.resources.resolved_device
        alike = at_hand(wanted).type == kind(wanted) or self._begun is not None
        return alike and self._devices_are_like_here()

    def measures_devices(self) -> bool:
        # Of processors it is the memory of their machines, also where their speed is given.
        finds = self._spec.pipeline.costs is None or self._spec.resources.resolved_device == "cpu"
        return finds and not self._are_as_measured()

    def find_devices(
        self, plan: Plan, costs: Costs, speed_test: Callable[[], SpeedTest], note: Callable[[str], None]
    ) -> StageDevices | None:
        if self._are_as_measured():
            return None
        from alray.core.accelerator import least_memory_bytes
        from alray.runtime.cluster.links import links_of
        from alray.runtime.device.devices import at_hand

        spec, resources = self._spec, self._spec.resources
        try:
            self._reserved = placement = self._placement(stage_bundles(spec, (plan.stages, plan.replicas)))
            parts = placement.machine_parts(plan.stages) if resources.resolved_device == "cpu" else ()
        except StageError:
            return None  # nodes were lost: the graph asks for the same room, reports the loss and is made again
        cores = placement.cores if resources.resolved_device == "cpu" else None
        ring, down = plan.is_ring, plan.scheduled.is_pipeline
        links, replica_link = links_of(placement.nodes, plan.stages, note, ring=ring, down=down)
        found = StageDevices(
            memory_bytes=parts, cores=cores, nodes=placement.hosts, links=links, replica_link=replica_link
        )
        if spec.pipeline.costs is not None:  # they hold for all devices
            return found
        self._free_devices()
        here_s, measured_on = costs.train_s, at_hand(resources.resolved_device).type
        devices = placement.measured(speed_test(), plan.stages, measured_on, note)
        speeds = [1.0 if each is None else here_s / each.train_s for each in devices]
        slowest = slowest_of(speeds, plan.stages, plan.shares)
        here_bytes = None if measured_on == "cpu" else least_memory_bytes()
        sizes = [here_bytes if each is None else each.memory_bytes for each in devices]
        # The smallest device of its replicas has to hold a stage.
        smallest = tuple(min(filter(None, sizes[stage :: plan.stages]), default=None) for stage in range(plan.stages))
        return replace(
            found,
            stage_speed=rounded_speeds(slowest),
            evaluation_speed=rounded_speeds(speeds[: plan.stages]),
            memory_bytes=parts or smallest,
        )

    def _free_devices(self) -> None:
        """Called before the devices of the placement are measured: nothing else may compute there."""

    def room(self, layouts: Sequence[Layout]) -> Layout | None:
        # Each stage of a list requests separate resources: fewer stages would be another request. So wait for all.
        otherwise = None if isinstance(self._spec.resources.per_stage, dict) else layouts[0]
        return super().room(layouts) or otherwise


class TrialEngine(RayEngine):
    """Runs the stages of a trial of a study: in the placement group that Ray Tune gave it, from a process that is
    connected already, and in the processes that the trial before left."""

    _idle: ClassVar[StageProcesses | None] = None
    """The processes that the trial before left in this process, which end with it, as all actors that it started."""

    def __init__(self, spec: Spec, note: Callable[[str], None], study: Path) -> None:
        """
        Args:
            study: its folder.
        """
        super().__init__(spec, note)
        self._study = study
        self._keep = self._keep_idle
        self._connected.set_result(None)

    def mark_run_dir(self, run_dir: Location) -> None:
        super().mark_run_dir(run_dir)
        self._run_name = run_name(run_dir, self._study)

    def _begin(self, layout: Layout) -> StageProcesses:
        idle = TrialEngine._idle
        if idle is not None and idle.placement.bundles == tuple(stage_bundles(self._spec, layout)):
            TrialEngine._idle = None
            return idle
        self._free_devices()
        return super()._begin(layout)

    @staticmethod
    def _keep_idle(processes: StageProcesses) -> None:
        TrialEngine._idle = processes

    def _placement(self, bundles: list[Bundle]) -> Placement:
        from alray.runtime.cluster.placement import Placement

        return Placement.of_trial(bundles)

    def _free_devices(self) -> None:
        idle, TrialEngine._idle = TrialEngine._idle, None
        if idle is not None:
            idle.end()

    def room(self, layouts: Sequence[Layout]) -> Layout | None:
        """The group stays as it is, and asks for the same room again if a node is lost."""
        whole = self._placement(stage_bundles(self._spec, layouts[0])).is_whole
        return layouts[0] if whole else None


class TrainEngine(ClusterEngine):
    """Runs the replicas of one stage as Ray Train's workers on a connected cluster."""

    name = "ray_train"

    def graph(self, plan: Plan) -> Graph:
        from alray.runtime.ray_train.graph import TrainGraph

        return TrainGraph(
            stage_bundles(self._spec, (plan.stages, plan.replicas)),
            self._note,
            run_token=self.run_token,
            labels=self._spec.resources.labels,
        )


def stage_bundles(spec: Spec, layout: Layout | None = None) -> list[Bundle]:
    """The resources that each stage requests from Ray, replica by replica.

    Args:
        layout: None: that of the spec.
    """
    stages, replicas = layout or (spec.pipeline.stages, spec.replicas.count)
    return spec.resources.bundles(stages) * replicas


def begin_engine(spec: Spec, options: Options, note: Callable[[str], None]) -> Engine:
    """The engine for a spec; the caller closes it. With Ray, the connection to the cluster is made in the background.

    Raises RequestError if the spec cannot run in one process and is to, if Ray cannot start here, or as
    `require_launched_once`, and PlanError if this process will compile what it trains or measures, and cannot.

    Args:
        options: if they name a study, the run is a trial of it: its process is connected already, and has a placement
            group.
        note: is called with lines for the user, in the background too.
    """
    if options.study is None:
        require_launched_once()
    if options.inline:
        _require_one_process(spec)
    else:
        require_ray_can_start()
    if spec.run.compile and (options.inline or spec.pipeline.costs is None):
        from alray.models.compiled import require_compiler

        require_compiler()
    if options.inline:
        return InlineEngine(alone=options.alone)
    if options.study is not None:
        return TrialEngine(spec, note, options.study)
    engine = TrainEngine(spec, note) if spec.replicas.engine == "ray_train" else RayEngine(spec, note)
    engine.connect(options.address)
    return engine


def _require_one_process(spec: Spec) -> None:
    """Raise RequestError if the spec cannot run in one process."""
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
