"""Planning a run: the costs of its components, its plan, and new plans for other devices or after a failure."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from statistics import median

from alray.config.sections.own_code import OBJECT, OwnCode
from alray.config.sections.replica_checks import layout_faults
from alray.config.sections.replicas import AverageEvery
from alray.config.sections.spec import Spec
from alray.config.user_code import UserCode
from alray.core import accelerator
from alray.core.errors import MessageError, NodesLost, PlanError
from alray.data.batches import EvaluationBatches, TrainBatches
from alray.data.opening import check_pictures
from alray.models.network import Network
from alray.models.split_backward import splits
from alray.planning.prediction.all_reduce import LinkCost
from alray.planning.prediction.basis import basis_of
from alray.planning.prediction.costs import Costs, Link
from alray.planning.prediction.machines import Device, Machines
from alray.planning.prediction.make import make_plan
from alray.planning.prediction.plan import Plan
from alray.planning.prediction.setting import StepSetting
from alray.planning.prediction.shares import first_shares
from alray.planning.prediction.stage_devices import AS_HERE, StageDevices
from alray.planning.schedules.partition_rules import partition_faults, refuse, stage_faults
from alray.planning.schedules.schedule import kinds_of
from alray.planning.schedules.table import SCHEDULES
from alray.runtime.channel.all_reduce import all_reduce_class
from alray.runtime.channel.compression import compression_class
from alray.runtime.channel.message import packed_layout
from alray.runtime.device import devices
from alray.runtime.options import Options
from alray.runtime.planner.action_overhead import time_action_overhead
from alray.runtime.planner.cached_costs import cache_encoders, cached_costs, cached_encoders
from alray.runtime.planner.costs_file import in_proportion, probed, read_costs
from alray.runtime.planner.memory_limits import require_memory, stage_memory_limits, step_setting
from alray.runtime.planner.micro_batches import with_micro_batches
from alray.runtime.planner.normalisation import require_samples_to_normalise, require_whole_norms
from alray.runtime.planner.stage_devices import FindsDevices, stage_links, with_their_resources
from alray.runtime.planner.updates import notes_on_length, require_an_update
from alray.runtime.probe.device_speed import SpeedTest
from alray.runtime.probe.estimate import costs_on, estimate_costs, given_costs, in_micro_batches
from alray.runtime.probe.measure import Surroundings, probe_costs
from alray.runtime.probe.other_programs import measured_beside
from alray.runtime.workload import Workload

_AS_USUAL = Options()
_DATA_REPEATS = 10
_DATA_S = 1.0
_COMPILING_S = 300.0
_MICRO_BATCHES = (4, 2, 3, 5, 7)
_FIRST_ON_GPU_S = 60.0

Note = Callable[[str], None]
"""Shows one line to the user."""


@dataclass(frozen=True)
class Planner:
    """Makes the plans of one run.

    Attributes:
        one_process: whether the stages take turns in this process (`--inline`). A pipeline of backpropagation is then
            planned as one stage, which adds up the gradients of its micro-batches.
    """

    workload: Workload
    one_process: bool = False

    @property
    def spec(self) -> Spec:
        return self.workload.spec

    @classmethod
    def open(
        cls,
        spec: Spec,
        code: UserCode,
        options: Options = _AS_USUAL,
        *,
        note: Note = lambda line: None,
        trained: bool = False,
        without_data: bool = False,
        most_stages: int = 0,
    ) -> Planner:
        """Open the workload of a spec (see `Workload.open`) and decide `pipeline.micro_batches: auto`.

        With `--inline` this process needs the device of the stages. The folder of a study keeps what is known of
        encoders for other runs of equal ones.

        Raises DataError, SpecError or PlanError for everything that can be found wrong without running.

        Args:
            without_data: data that are not there may be left out if their sizes are known, for there will be no run.
                Only then do the spec's machines count.
            most_stages: as for `Workload.open`.
        """
        if spec.machines is not None and not without_data:
            note("`machines` are for plans: this run is on this machine, or on its cluster")
            spec = spec.model_copy(update={"machines": None})
        spec = with_their_resources(spec)
        devices.require_known(spec.resources.resolved_device)
        if options.inline:
            devices.pick(spec.resources.resolved_device)
        if options.deep:
            check_pictures(spec.data, code, spec.task)
        kept = None if options.study is None else options.study / "costs"
        workload = Workload.open(
            spec,
            code,
            known=lambda sample: () if kept is None else cached_encoders(kept, spec, code, sample),
            trained=trained,
            for_plan=without_data,
            of_run=options.standardised_as,
            most_stages=most_stages,
        )
        if kept is not None:
            cache_encoders(kept, workload.spec, code, workload.network.blocks)
        spec = workload.spec
        workload.require_same_model(options.model_sha256, "the recorded run", note)
        if isinstance(spec.data, OwnCode) and spec.data.source.startswith(OBJECT):
            workload.facts.identity.require_same(options.data, "the recorded run", hint="give the data of that run")
        elif changes := workload.facts.identity.changes(options.data):
            note(f"these are not the data that the recorded run had: {'; '.join(changes.values())}")
        workload.require_measured_stop()
        # The checks of a spec do not know how many components a model is cut into.
        cut = spec.pipeline.partition
        numbers = len(workload.network), spec.pipeline.stages, spec.virtual_stages
        refuse(stage_faults(*numbers) if isinstance(cut, str) else partition_faults(cut, *numbers))
        spec = with_micro_batches(spec, workload.network)
        require_whole_norms(spec, workload.network)
        require_samples_to_normalise(spec, workload)
        require_an_update(workload)
        _require_edges(workload.network)
        workload.network.require_parts(spec.optimizer.rate_factors)
        all_reduce_class(spec.replicas.all_reduce, code)
        compression_class(spec.replicas.compression, code)
        for line in (*workload.notes, *notes_on_length(workload)):
            note(line)
        return cls(replace(workload, spec=spec), options.inline)

    def costs(
        self,
        *,
        probe: bool,
        any_layout: bool = False,
        wait_until_quiet: Callable[[], None] = lambda: None,
        kept: Path | None = None,
    ) -> Costs:
        """The costs of the components: given in the spec, else measured here if `probe`, else estimated.

        For machines elsewhere they are estimated by what is published of their devices.

        Args:
            any_layout: they are for plans of several numbers of stages, whatever the spec has.
            wait_until_quiet: see `probe_costs`.
            kept: the folder that keeps measured costs for other trials of equal components.

        Raises:
            PlanError: if `probe` and a component is larger than this machine's memory.
        """
        given = self.spec.pipeline.costs
        if given is not None:
            if probe:
                require_memory(self.workload)
            counted = self._estimate()
            wait_until_quiet()  # nothing is measured here, but what went wrong meanwhile is raised
            if isinstance(given, Path):
                timed = read_costs(given, self.spec, counted, self._machines)
            else:
                timed = given_costs(counted, given, batch_size=self.spec.data.batch_size)
            # An accelerator sends from its own memory: its sender takes no time for a message.
            if self._machines is not None and self._machines.kinds[0].accelerator:
                timed = replace(timed, edge_latency_s=0.0, edge_s_per_byte=0.0)
            return timed
        if self._machines is not None:
            if probe:
                raise PlanError(
                    "--probe measures this machine, and the plan is for others",
                    key="--probe",
                    hint="leave it out; `alray plan` takes what `alray probe SPEC --output costs.json` "
                    "measured on such a device, with --costs costs.json",
                )
            return self._costs_on(self._machines.kinds[0])
        if not probe:
            return self._estimate()
        surroundings = self.surroundings(any_layout=any_layout)
        measure = partial(self._measure, surroundings, wait_until_quiet)
        return cached_costs(kept, self.spec, self.workload.code, surroundings, measure)

    def costs_for_others(self, note: Note) -> Costs:
        """Costs measured here for any number of stages, as a file has them."""
        costs = self._measure(self.surroundings(any_layout=True), lambda: None)
        for line in measured_beside(costs.taken_processors):
            note(line)
        return probed(costs, self.spec)

    def _measure(self, surroundings: Surroundings, wait_until_quiet: Callable[[], None]) -> Costs:
        require_memory(self.workload)
        resources, deterministic = self.spec.resources, self.spec.run.deterministic
        with (
            devices.configured(resources.threads, deterministic, surroundings.device, resources.tf32),
            self._batches() as batches,
        ):
            costs = probe_costs(self.workload.network, next(batches), surroundings, wait_until_quiet=wait_until_quiet)
            if surroundings.pipeline:
                costs = replace(costs, action_overhead_s=time_action_overhead())
            return replace(costs, data_s=self._data_s(batches))

    def plan(
        self,
        costs: Costs,
        *,
        engine: FindsDevices | None = None,
        note: Note = lambda line: None,
    ) -> Plan:
        """The plan that the spec asks for.

        Args:
            engine: that of the run; None: nothing runs. The memory of GPUs that it will measure for `fitted` limits no
                stage before.
        """
        spec = self.spec
        for line in _plan_notes(self.workload.network, costs, one_process=self.one_process, runs=engine is not None):
            note(line)
        found = StageDevices(to_measure=engine is not None and engine.measures_devices())
        return self.plan_for(costs, spec.pipeline.stages, spec.replicas.count, found)

    def plan_for(self, costs: Costs, stages: int, replicas: int, found: StageDevices) -> Plan:
        """The plan for this many stages and replicas, on the devices that the engine found, or will find.

        Another number of stages gets a new partition. It leaves the weights the same, bit for bit with local losses and
        up to rounding with backpropagation, unless messages are compressed between stages alone. Another number of
        replicas gets new shares and rounds the gradients' sums differently.

        Args:
            costs: as `costs` gives them; those of other shares are taken in proportion.
        """
        if (samples := max(self._shares(replicas))) != costs.batch_size:
            costs = in_proportion(costs, self._estimate(samples))
        spec = self.spec
        machines = self._machines
        setting = self.setting(spec, costs, stages, replicas, found)
        data = self.workload.data
        measured = spec.run.splits(last=False)
        there = [name for name, split in data.splits.items() if split is not None]
        plan = make_plan(
            setting,
            spec.pipeline.partition if stages == spec.pipeline.stages else "auto",
            evaluation_batches=sum(len(EvaluationBatches(data, split)) for split in measured if split in there),
            shares=self._shares(replicas),
            method=spec.method.kind,
            steps_per_epoch=self.workload.facts.steps_per_epoch,
            total_steps=self.workload.total_steps,
            nodes=found.nodes if machines is None else machines.stage_devices(stages, replicas).nodes,
            assumed=self.workload.data.assumed,
            machines=None if machines is None else str(machines),
            basis=basis_of(setting.costs, machines, replicas=replicas),
        )
        return replace(plan, deadline_s=spec.run.deadline_s or plan.deadline_s + _first_time_s(spec))

    def setting(
        self, spec: Spec, costs: Costs, stages: int, replicas: int, found: StageDevices = AS_HERE
    ) -> StepSetting:
        """The setting of a step: on the machines of the spec, where each stage has a device, or on what was found.

        Raises PlanError where there are too few devices.

        Args:
            spec: that of the planner, perhaps in another layout.
            costs: as `costs` gives them. For machines, counted times are completed for the number of micro-batches.
            found: as for `plan_for`.
        """
        spec, machines, one_process = with_their_resources(spec), self._machines, self.one_process
        limits = stage_memory_limits(
            spec,
            stages,
            replicas,
            self.workload.device,
            one_process=one_process,
            found=found,
        )
        setting = step_setting(
            spec,
            costs,
            stages,
            replicas,
            one_process=one_process,
            memory_limits=limits,
            in_turns=one_process and stages * replicas > 1,
        )
        if machines is not None:
            if costs.source == "roofline":
                costs = in_micro_batches(
                    costs,
                    self.workload.network,
                    setting.micro_batches,
                    device=machines.kinds[0],
                    here=self.workload.device,
                )
            found = machines.stage_devices(
                stages,
                replicas,
                train_s=self._train_s,
                shares=self._shares(replicas),
                ring=setting.is_ring,
                down=setting.scheduled.is_pipeline,
            )
        return replace(
            setting,
            costs=self.averaged(costs, replicas, found.replica_link),
            stage_speed=() if one_process else found.stage_speed,
            evaluation_speed=found.evaluation_speed,
            cores=found.cores or self.cores(),
            links=() if one_process else stage_links(spec, stages, found),
        )

    def fitted(self, plan: Plan, costs: Costs, engine: FindsDevices, note: Note) -> Plan:
        """The plan for the devices that the engine has for the stages; `plan` itself if they equal this machine's."""
        if (found := engine.find_devices(plan, costs, self._speed_test, note)) is None:
            return plan
        for line in found.lines():
            note(line)
        return self.plan_for(costs, plan.stages, plan.replicas, found)

    def replanned(self, before: Plan, costs: Costs, engine: FindsDevices, note: Note) -> Plan:
        """The plan after a failure, with fewer replicas or stages if nodes are gone. Raises NodesLost if the others
        have no room for any number of them that the spec can run with."""
        # Replicas are given up before stages, because a network may need all its stages.
        fewer = [(before.stages, count) for count in range(before.replicas - 1, 0, -1)]
        if isinstance(self.spec.resources.per_stage, dict):
            fewer += [(count, 1) for count in range(before.stages - 1, 0, -1)]
        possible = [each for each in fewer if next(layout_faults(self.spec, *each), None) is None]
        room = engine.room([(before.stages, before.replicas), *possible])
        if room is None:
            raise NodesLost(
                "no node is left that can hold a stage"
                if possible == fewer
                else "the nodes that are left have no room for a number of stages and replicas that "
                f"`{self.spec.schedule_name}` can run with",
                hint="bring nodes back, then `alray resume` the run",
            )
        stages, replicas = room
        plan = before
        if (stages, replicas) != (before.stages, before.replicas):
            plan = self.plan_for(costs, stages, replicas, StageDevices(to_measure=engine.measures_devices()))
        plan = self.fitted(plan, costs, engine, note)
        if replicas != before.replicas:
            note(
                f"there is room for {replicas} of {before.replicas} replicas: "
                f"they take {list(plan.shares)} samples of each mini-batch from here on"
            )
            if isinstance(self.spec.replicas.synchronise, AverageEvery):
                note("they continue from the mean of the weights and the optimizers of replica 0")
        if stages != before.stages:
            note(f"there is room for {stages} of {before.stages} stages: partition {list(plan.partition)} from here on")
        return plan

    def surroundings(self, *, any_layout: bool = False) -> Surroundings:
        """The load of this machine while a component computes, so that the probe can imitate it.

        Args:
            any_layout: with micro-batches where the method has any, and with as many other stages as there are
                processors for, although the spec may have one stage.
        """
        spec, cores = self.spec, self.cores()
        stages, parts = spec.pipeline.stages, spec.micro_batches
        pipeline = stages > 1 and SCHEDULES[spec.schedule].is_pipeline
        at_once = 1 if cores is None else cores // spec.resources.threads
        if not any_layout:
            at_once = min(at_once, 1 if self.one_process else stages * spec.replicas.count)
        elif not spec.method.local_losses:
            pipeline, samples = True, self._samples
            least = 1 if self.workload.network.needs_two_samples is None else 2
            if parts == 1:
                parts = next((each for each in _MICRO_BATCHES if samples % each == 0 and samples // each >= least), 1)
        return Surroundings(self.workload.device, pipeline, parts, others=max(0, at_once - 1))

    def _batches(self) -> TrainBatches:
        """The first mini-batches of the run, without loader workers."""
        spec = self.spec
        return TrainBatches(
            self.workload.data,
            seed=spec.seed,
            start_step=0,
            end_step=_DATA_REPEATS,
            workers=0,
            dtype=self.workload.network.dtype,
            shares=sorted(self._shares(spec.replicas.count), reverse=True),
        )

    def _data_s(self, batches: TrainBatches) -> float:
        """Seconds it takes to prepare one of these mini-batches, of which one was taken; 0 if loader workers do it, or
        if the data are not there."""
        if self.workload.data.assumed is not None:
            return 0.0
        times: list[float] = []
        began = time.perf_counter()
        while len(times) < _DATA_REPEATS - 1 and time.perf_counter() - began < _DATA_S:
            started = time.perf_counter()
            next(batches)
            times.append(time.perf_counter() - started)
        return 0.0 if self.spec.data.workers else median(times)

    def _estimate(self, samples: int | None = None) -> Costs:
        """
        Args:
            samples: of a mini-batch on one replica; None: those of the spec.
        """
        return estimate_costs(
            self.workload.network,
            batch_size=samples or self._samples,
            device=self.workload.device,
        )

    def _costs_on(self, device: Device) -> Costs:
        """By the roofline of a device that is not here."""
        workload = self.workload
        return costs_on(
            workload.network,
            batch_size=self._samples,
            device=device,
            here=workload.device,
        )

    @cached_property
    def _machines(self) -> Machines | None:
        """The machines elsewhere that the plans are for; None: this one, or those of a cluster."""
        section = self.spec.machines
        return None if section is None else section.described()

    @cached_property
    def _train_s(self) -> Callable[[Device], float]:
        """Seconds of all components on a kind of device of the machines, which many layouts ask for."""
        return cache(lambda kind: self._costs_on(kind).train_s)

    def _speed_test(self) -> SpeedTest:
        """Measures the components on another device, with the mini-batch that they were measured with here."""
        workload = self.workload
        with self._batches() as batches:
            batch = next(batches)
        return SpeedTest(
            workload.spec,
            workload.facts.sample,
            workload.facts.classes,
            workload.code,
            batch,
            stage=0,
        )

    def averaged(self, costs: Costs, replicas: int, link: Link | None) -> Costs:
        """The costs with averages of gradients over the network between replicas, where it is known what is sent.

        The longer of two times counts: as measured between processes of one machine, and as the cost model says for
        this link. For machines elsewhere only the latter does.
        """
        spec = self.spec
        sent_share = spec.replicas.compression.share_sent(self.workload.network.dtype.itemsize)
        if link is None or replicas == 1 or sent_share is None:
            return costs
        model = all_reduce_class(spec.replicas.all_reduce, self.workload.code)
        over = LinkCost(
            link.latency_s,
            max(link.up_s_per_byte, link.down_s_per_byte),
            "nccl" if accelerator.has_nccl(spec.resources.resolved_device) else "gloo",
        )
        interval = spec.replicas.average_interval(spec.optimizer.accumulate)
        components = []
        for each in costs.components:
            reduce_s = each.reduce_s if self._machines is None else 0.0
            if each.gradient_bytes:
                reduce_s = max(reduce_s, model.seconds(replicas, sent_share * each.gradient_bytes, over) / interval)
            components.append(replace(each, reduce_s=reduce_s))
        return replace(costs, components=tuple(components))

    @property
    def _samples(self) -> int:
        """The most samples of a mini-batch that a replica takes."""
        return max(self._shares(self.spec.replicas.count))

    def _shares(self, replicas: int) -> tuple[int, ...]:
        """Samples of the first mini-batch for each replica."""
        spec = self.spec
        given = spec.replicas.shares if replicas == spec.replicas.count else None
        return first_shares(replicas, spec.data.batch_size, given)

    def cores(self) -> int | None:
        """Processors that the stages share; None if each stage has its own device, as on machines elsewhere."""
        if self._machines is not None:
            return None
        if self.one_process:
            return self.spec.resources.threads
        return len(os.sched_getaffinity(0)) if self.spec.resources.resolved_device == "cpu" else None


def _first_time_s(spec: Spec) -> float:
    """Seconds that the first mini-batch and the first evaluation may take longer than the others.

    They compile what they use. On a GPU they load every kernel, and cuDNN tries its algorithms if it may.
    """
    on_gpu_s = 0.0 if spec.resources.resolved_device == "cpu" else _FIRST_ON_GPU_S
    return on_gpu_s + (_COMPILING_S if spec.run.compile else 0.0)


def _plan_notes(network: Network, costs: Costs, *, one_process: bool, runs: bool) -> Iterator[str]:
    """Yield the notes that the user should read before the plan of a spec."""
    spec = network.spec
    yield from _unsplit_notes(network)
    if spec.machines is not None:
        return
    yield from measured_beside(costs.taken_processors)
    if spec.pipeline.links and spec.pipeline.stages > 1:
        links = ", then ".join(f"{link.bandwidth} and {link.latency}" for link in spec.pipeline.links)
        yield (
            "in one process no message is delayed: `pipeline.links` has no effect"
            if one_process
            else f"messages between stages are delayed as over links of {links}"
        )
    kinds = set(map(spec.resources.device_of, range(spec.pipeline.stages)))
    if len(kinds) > 1 and not runs:
        yield "stages on processors and on GPUs count as equally fast: only a run measures them"


def _unsplit_notes(network: Network) -> Iterator[str]:
    """Yield a note if the schedule splits backward passes, and those of some components stay whole."""
    spec = network.spec
    if "I" not in kinds_of(SCHEDULES[spec.schedule], spec.pipeline.stages):
        return
    # Nothing waits for the gradients of component 0.
    components = [network.component(index, "meta") for index in range(1, len(network))]
    whole = [
        str(each.index)
        for each in components
        if any(parameter.requires_grad for parameter in each.parameters()) and (spec.run.compile or not splits(each))
    ]
    if whole:
        named = f"components {', '.join(whole[:-1])} and {whole[-1]}" if len(whole) > 1 else f"component {whole[0]}"
        yield (
            f"`{spec.schedule_name}` splits backward passes, but nothing of those of {named}: "
            + (
                "compiled code cannot be split"
                if spec.run.compile
                else "only linear and convolutional layers that are modules of torch can be split"
            )
        )


def _require_edges(network: Network) -> None:
    """Raise PlanError if a user's method sends what no edge between stages carries."""
    if not isinstance(network.spec.method, OwnCode):
        return
    for after in range(len(network) - 1):
        tensors = {name: shape.empty(1, "meta") for name, shape in network.edge(after).items()}
        try:
            packed_layout(tensors, f"after component {after}")
        except MessageError as error:
            problem = error.problems[0]
            raise PlanError(problem.message, hint=problem.hint, key="method.kind") from error
