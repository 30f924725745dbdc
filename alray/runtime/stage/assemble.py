"""From an assignment to a loop that runs: components, stage, replication, cuts. The same for every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from alray.config.sections.own_code import OwnCode
from alray.core import accelerator
from alray.core.accelerator import is_accelerator, recorded
from alray.data.batches import Batch
from alray.data.dataset import Dataset
from alray.models.backpropagation import BackpropagationComponent
from alray.models.component import Component, LocalComponent
from alray.models.encoder import Tensors
from alray.models.network import Network
from alray.models.precision import require_precision
from alray.models.replica_norm import share_norms
from alray.planning.prediction.plan import Plan
from alray.planning.schedules.actions import Action
from alray.planning.schedules.table import SCHEDULES
from alray.runtime.device.memory_used import peak_memory_bytes
from alray.runtime.stage.assignment import Assignment
from alray.runtime.stage.checkpoint import load_component
from alray.runtime.stage.clock import Clock
from alray.runtime.stage.copies import Copies
from alray.runtime.stage.cuts import Cuts
from alray.runtime.stage.disturbance import Slowdown
from alray.runtime.stage.gpu_times import GpuTimes
from alray.runtime.stage.leader import Control
from alray.runtime.stage.loop import StageLoop
from alray.runtime.stage.ports import Ports
from alray.runtime.stage.profiler import Profiler
from alray.runtime.stage.reduction import ReducedReplication
from alray.runtime.stage.replica_state import load_replica_state
from alray.runtime.stage.replication import ReplicaPeers, Replication
from alray.runtime.stage.stage import Stage
from alray.runtime.stage.telemetry import Telemetry
from alray.runtime.stage.work.backpropagation import WHOLE, BackpropagationWork, MicroBatching
from alray.runtime.stage.work.data_parallel import DataParallel, DataParallelReplication
from alray.runtime.stage.work.local_losses import LocalLosses
from alray.runtime.workload import network_of, open_training_data


def network_for(assignment: Assignment) -> Network:
    """The network of the run, without its weights."""
    trained = assignment.start.files is not None
    return network_of(assignment.spec, assignment.data, assignment.code, trained=trained, encoders=assignment.encoders)


def assemble_loop(
    assignment: Assignment,
    *,
    network: Network,
    device: torch.device,
    ports: Ports,
    clock: Clock,
    control: Control,
    emit: Callable[[Telemetry], None],
    profiler: Profiler,
    replicas: ReplicaPeers | None = None,
    baseline_bytes: int | None = None,
) -> StageLoop:
    """The loop of one stage, with the weights of the checkpoint that the run starts from.

    A data-parallel stage needs the default process group of all replicas.

    Args:
        emit: takes what the driver is to hear, from this thread and from the one that writes checkpoints.
        replicas: None where there is one replica.
        baseline_bytes: by `memory_baseline`; None: the memory of the stage is not measured.
    """
    require_precision(assignment.spec.run.precision, device)
    components = _components(assignment, network, device)
    replication = _replication(assignment, components, replicas, device)
    if replicas is not None and replicas.norms is not None:
        norms = replication.in_order(replicas.norms)
        for component in components:
            share_norms(component, norms)
    if assignment.start.files is not None:
        for component in components:
            load_replica_state(component, replication, assignment.start.files)
    stage = _stage(assignment, components, replication)

    def inputs(batch: Batch) -> Tensors:
        return batch.inputs(device, network.dtype)

    copies = None
    if network.method.copy_every is not None:
        last = assignment.stage == assignment.plan.stages - 1
        copies = Copies(components, network.method.copy_every, last=last, ports=ports, clock=clock)
    cuts = Cuts(
        assignment,
        stage=stage,
        ports=ports,
        clock=clock,
        replication=replication,
        copies=copies,
        control=control,
        emit=emit,
        inputs=inputs,
        measured=network.method.task.learning.measured if network.measures_where_routes_end else None,
    )
    fed_by = accelerator.own_stream(device) if assignment.stage == 0 else None
    return StageLoop(
        assignment,
        stage=stage,
        ports=ports,
        cuts=cuts,
        copies=copies,
        clock=clock,
        replication=replication,
        emit=emit,
        feed=lambda batches: feed(batches, lambda batch: batch.with_labels(device, network.dtype), fed_by),
        dtype=network.dtype,
        pinned=is_accelerator(device),
        open_data=partial(_open_data, assignment),
        peak_memory_bytes=lambda: None if baseline_bytes is None else peak_memory_bytes(device, baseline_bytes),
        profiler=profiler,
    )


def _open_data(assignment: Assignment) -> Dataset:
    """The data of the run. Raises DataError if they are not those with which it was planned."""
    data = open_training_data(assignment.spec, assignment.code)
    hint = "give every node the same files, and do not change them during a run"
    if isinstance(assignment.spec.data, OwnCode):
        hint = f"your class has to give the same data whenever it is opened; {hint}"
    data.identity.require_same(assignment.data.identity, "the run as it began", hint=hint)
    data.standardise(assignment.data.normalisation, assignment.data.target_normalisation)
    return data


def clock_for(assignment: Assignment, device: torch.device) -> Clock:
    """The clock of a stage on this device, made in the thread that computes."""
    return Clock(
        started_wall_s=assignment.started_wall_s,
        start_step=assignment.start.step,
        alone=assignment.plan.stages == assignment.plan.replicas == 1,
        profiled=assignment.profile,
        gpu=GpuTimes(partial(recorded, device, timed=True)) if is_accelerator(device) else None,
    )


def _components(assignment: Assignment, network: Network, device: torch.device) -> list[Component]:
    """The stage's components, with what the checkpoint that the run starts from has of them for all replicas."""
    own = assignment.plan.stage_plans[assignment.stage].components
    components = [network.component(index, device) for index in own]
    for component in components:
        component.f.replica = assignment.replica
        if SCHEDULES[assignment.plan.schedule].gradient_delay:
            for optimizer in component.optimizers().values():
                optimizer.delay()
    if assignment.start.files is not None:
        for component in components:
            load_component(component, assignment.start.files)
    return components


def _replication(
    assignment: Assignment, components: list[Component], replicas: ReplicaPeers | None, device: torch.device
) -> Replication:
    """The stage among the same stage of all replicas."""
    if replicas is None:
        return Replication(assignment.spec.data.batch_size)
    if assignment.data_parallel:
        return DataParallelReplication(assignment, replicas)
    return ReducedReplication(assignment, replicas, components, device)


def _stage(assignment: Assignment, components: list[Component], replication: Replication) -> Stage:
    spec, plan = assignment.spec, assignment.plan
    slowdown = None
    if spec.replicas.disturbance is not None:
        slowdown = Slowdown(spec, assignment.replica, steps_per_epoch=assignment.data.steps_per_epoch)
    if assignment.data_parallel:
        assert isinstance(replication, DataParallelReplication)
        work = DataParallel(chain_of(components), replication)
        return Stage(work, plan.actions(assignment.stage), micro_batches=plan.micro_batches, slowdown=slowdown)
    return stage_of(
        plan,
        assignment.stage,
        components,
        replication,
        slowdown=slowdown,
        compiled=spec.run.compile,
    )


def stage_of(
    plan: Plan,
    stage: int,
    components: Sequence[Component],
    replication: Replication | None = None,
    *,
    actions: Sequence[Action] | None = None,
    slowdown: Slowdown | None = None,
    compiled: bool = False,
) -> Stage:
    """A stage of the plan that trains these components.

    Args:
        actions: in place of the plan's list; None: the plan's.
        compiled: whether blocks are compiled, so that no backward can be split.
    """
    listed = plan.actions(stage) if actions is None else actions
    work = work_of(
        components,
        replication,
        lengths=[len(run) for run in plan.stage_plans[stage].runs],
        averages_early=slowdown is None,
        cut=MicroBatching(plan.micro_batches, split=set() if compiled else split_by(listed)),
    )
    micro_batches = None if isinstance(work, LocalLosses) else plan.micro_batches
    return Stage(work, listed, micro_batches=micro_batches, slowdown=slowdown)


def split_by(actions: Sequence[Action]) -> set[tuple[int, int]]:
    """The micro-batches whose backward a stage's list splits, as `MicroBatching.split`."""
    virtual = sorted({action.stage for action in actions})
    return {(virtual.index(action.stage), action.number) for action in actions if action.kind == "I"}


def work_of(
    components: Sequence[Component],
    replication: Replication | None = None,
    *,
    lengths: Sequence[int] = (),
    averages_early: bool = True,
    cut: MicroBatching = WHOLE,
) -> LocalLosses | BackpropagationWork:
    """What computes with these components.

    Args:
        replication: None: there is one replica.
        lengths, averages_early: as `Work` has them.
        cut: of mini-batches, by backpropagation.
    """
    among = replication or Replication(), lengths, averages_early
    local = [component for component in components if isinstance(component, LocalComponent)]
    if len(local) == len(components):
        return LocalLosses(local, *among)
    return BackpropagationWork(chain_of(components), *among, cut)


def chain_of(components: Sequence[Component]) -> list[BackpropagationComponent]:
    """The same components, known to train by backpropagation."""
    chain = [component for component in components if isinstance(component, BackpropagationComponent)]
    assert len(chain) == len(components), "components of one method only"
    return chain


def feed(
    batches: Iterable[Batch], given: Callable[[Batch], Tensors], stream: torch.Stream | None
) -> Iterator[tuple[Batch, Tensors]]:
    """Each mini-batch, with what the first component takes of it and its `labels`, on the device.

    A GPU copies the next mini-batch while it computes on this one. So one mini-batch is read ahead.

    Args:
        given: takes a mini-batch to its inputs and labels on the device (`Batch.with_labels`).
        stream: of the GPU, for these copies; None: the device is a CPU.
    """
    if stream is None:
        for batch in batches:
            yield batch, given(batch)
        return
    ahead: _CopyToGpu | None = None
    for batch in batches:
        before, ahead = ahead, _CopyToGpu.begin(batch, given, stream)
        if before is not None:
            yield before.batch, before.ready()
    if ahead is not None:
        yield ahead.batch, ahead.ready()


@dataclass(frozen=True)
class _CopyToGpu:
    """A mini-batch on its way to a GPU. It keeps the host memory from which the GPU copies."""

    batch: Batch
    tensors: Tensors
    done: torch.Event

    @classmethod
    def begin(cls, batch: Batch, given: Callable[[Batch], Tensors], stream: torch.Stream) -> _CopyToGpu:
        with accelerator.within(stream):
            return cls(batch, given(batch), accelerator.recorded(stream.device))

    def ready(self) -> Tensors:
        """The tensors for the current stream, which waits for the copy. The host does not wait."""
        current = accelerator.current_stream(self.done.device)
        current.wait_event(self.done)
        for tensor in self.tensors.values():
            tensor.record_stream(current)  # or the copy after the next might write on memory that is still read
        return self.tensors
