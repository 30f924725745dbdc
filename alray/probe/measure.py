"""The probe: measures the times of each component on this machine, and how much other stages slow it down."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch

from alray.data.batches import Batch
from alray.device import devices
from alray.device.out_of_memory import is_out_of_memory, requested_text
from alray.errors import RunError, UserCodeError
from alray.nn.component import Component, Exercise
from alray.nn.encoder import Tensors
from alray.nn.network import Network
from alray.nn.own_state import require_same_buffers, unsaved_buffers
from alray.nn.precision import require_precision
from alray.prediction.costs import ComponentCosts, Costs
from alray.probe.all_reduce import time_reduction
from alray.probe.contention import companions, measure_contention
from alray.probe.estimate import estimate_costs
from alray.probe.later_positions import require_no_later_position
from alray.probe.micro_batch import MicroBatchTimes, time_micro_batch
from alray.probe.other_programs import OtherPrograms
from alray.probe.timing import Timed, Timing, time_parts
from alray.user_code import FAULTS_OF_USER_CODE

_TRIED = "it was tried on the first mini-batch; correct the block, or the spec's fields for it"
_WORK_S = 0.03  # least time of the work that is measured alone and next to other stages
_TRAINING = ("forward_s", "label_s", "backward_s", "update_s")


@dataclass(frozen=True)
class Surroundings:
    """How the components will run in training."""

    device: torch.device
    threads: int  # of each stage
    deterministic: bool
    tf32: devices.Tf32 = "convolutions"
    pipeline: bool = False  # whether the schedule is one of torch's pipelines
    micro_batches: int = 1  # equal parts of a mini-batch
    others: int = 0  # number of other stages that compute on this machine at the same time


def probe_costs(
    network: Network, batch: Batch, surroundings: Surroundings, *, wait_until_quiet: Callable[[], None] = lambda: None
) -> Costs:
    """Costs measured on a real mini-batch; each time is the median of its repeats.

    Components that differ in their weights only are measured once. Threads, determinism and random numbers of the
    process are restored.

    Args:
        wait_until_quiet: returns when no other process of this run takes processors; until then only sizes are counted.

    Raises:
        RunError: if a component fails.
    """
    device, threads = surroundings.device, surroundings.threads
    labels = {"labels": batch.labels.to(device)}
    incoming = batch.inputs(device, network.dtype) | labels
    names = [network.alike(index) for index in range(len(network))]
    kinds: dict[str, _Measured] = {}
    work: Callable[[], float] | None = None
    with companions(surroundings.others, threads=threads, nbytes=incoming["s"].nbytes) as others:
        counted = estimate_costs(network, batch_size=len(batch.labels), device=device, threads=threads)
        others.wait_until_ready()
        wait_until_quiet()
        other_programs = OtherPrograms()
        with devices.settled(threads, surroundings.deterministic, device, surroundings.tf32):
            require_precision(network.spec.run.precision, device)
            for index, name in enumerate(names):
                if name not in kinds:
                    timing = Timing(
                        kinds=len(set(names)),
                        other_bytes=_bytes_of_others(counted, index),
                        on_cuda=device.type == "cuda",
                    )
                    kind, exercise = _probe(network, index, incoming, surroundings, timing)
                    if work is None or kind.train_s > max(known.train_s for known in kinds.values()):
                        work = exercise
                    kinds[name] = kind
                incoming = kinds[name].passed_on | labels
            other_processors = other_programs.processors()
            assert work is not None, "a network has a component"
            contention = measure_contention(work, others) if surroundings.others else 1.0
            edge_latency_s, edge_s_per_byte = _time_edge(
                max(component.output_bytes for component in counted.components)
            )
    measured = [kinds[name] for name in names]
    costs = replace(
        counted,
        source="probe",
        components=tuple(
            _with_times(component, kind, surroundings)
            for component, kind in zip(counted.components, measured, strict=True)
        ),
        processor_share=_processor_share(measured, threads),
        edge_latency_s=edge_latency_s,
        edge_s_per_byte=edge_s_per_byte,
        contention=contention,
        other_processors=other_processors,
    )
    return _with_pipeline(costs, measured, surroundings) if surroundings.pipeline else costs


@dataclass(frozen=True)
class _Measured:
    """The measurements of one component, valid for all components like it."""

    timed: Timed
    passed_on: Tensors
    micro_batch: MicroBatchTimes | None
    reduce_s: float

    @property
    def train_s(self) -> float:
        return sum(self.timed.medians[name] for name in _TRAINING)


def _probe(
    network: Network, index: int, incoming: Tensors, surroundings: Surroundings, timing: Timing
) -> tuple[_Measured, Callable[[], float]]:
    """The measurements of component `index`, and a function that repeats its work and returns processor seconds."""
    micro_batch = None
    try:
        component = network.component(index, surroundings.device)
        samples = len(incoming["s"])
        exercise = _exercise(network, component, incoming, samples)
        exercise.forward()
        exercise.label()
        exercise.backward()
        buffers = {name: buffer.clone() for name, buffer in unsaved_buffers(component).items()}
        timed = time_parts(exercise.parts, timing)
        exercise.forward()
        exercise.label()
        passed_on = exercise.passed_on
        if surroundings.micro_batches > 1 and not network.method.local_losses:
            samples //= surroundings.micro_batches
            part = {name: tensor[:samples] for name, tensor in incoming.items()}
            splits = not network.spec.run.compile
            micro_batch = time_micro_batch(_exercise(network, component, part, samples), timing, splits=splits)
    except FAULTS_OF_USER_CODE as error:
        if is_out_of_memory(error):
            raise RunError(
                f"component {index} (block `{network.encoders[index].name}`) ran out of memory on the first "
                f"mini-batch: {requested_text(error)}",
                key=f"model.components[{index}]",
                hint="use a smaller data.batch_size, a smaller component, or a device with more memory",
            ) from error
        if isinstance(error, UserCodeError):
            raise error.with_hint(_TRIED) from error
        raise RunError(
            f"component {index} (block `{network.encoders[index].name}`) raised {type(error).__name__}: {error}",
            key=f"model.components[{index}]",
            hint=_TRIED,
        ) from error
    require_same_buffers(buffers, unsaved_buffers(component), index)
    if network.tokens is not None:
        require_no_later_position(component, network.encoders[index], incoming, network.tokens)
    reduce_s = time_reduction(component, network.spec.replicas, network.spec.optimizer.accumulate)
    return _Measured(timed, passed_on, micro_batch, reduce_s), lambda: _processor_s(exercise)


def _exercise(network: Network, component: Component, incoming: Tensors, samples: int) -> Exercise:
    shape, device = network.route_shape(component.index + 1), incoming["s"].device
    route = torch.zeros(samples, *shape, dtype=shape.dtype, device=device)
    return component.exercise(incoming, route, network.other_in_inference(component.index, samples, device))


def _bytes_of_others(counted: Costs, index: int) -> int:
    """Bytes that all components but one work on in a mini-batch."""
    return sum(
        other.parameter_bytes + other.gradient_bytes + other.optimizer_bytes + other.activation_bytes
        for number, other in enumerate(counted.components)
        if number != index
    )


def _processor_s(exercise: Exercise) -> float:
    """Processor seconds of one F, B and U. Wall time would also count the time that other processes run."""
    began, times = time.perf_counter(), 0
    busy = time.process_time()
    while times == 0 or time.perf_counter() - began < _WORK_S:
        for name in _TRAINING:
            exercise.parts[name]()
        times += 1
    return (time.process_time() - busy) / times


def _with_times(component: ComponentCosts, kind: _Measured, surroundings: Surroundings) -> ComponentCosts:
    times: dict[str, Any] = {**kind.timed.medians, "reduce_s": kind.reduce_s}
    times["backward_s"] += times["label_s"]  # B of the plan is both
    component = replace(component, **times)
    if kind.micro_batch is None:
        return component
    share = 1.0 / surroundings.micro_batches
    return replace(
        component,
        forward_fixed_s=(kind.micro_batch.forward_s - component.forward_s * share) / (1.0 - share),
        backward_fixed_s=(kind.micro_batch.backward_s - component.backward_s * share) / (1.0 - share),
    )


def _with_pipeline(costs: Costs, measured: list[_Measured], surroundings: Surroundings) -> Costs:
    """The costs, with the ratios of a split backward pass if micro-batches were measured."""
    split = [kind.micro_batch for kind in measured if kind.micro_batch and kind.micro_batch.input_gradient_s > 0]
    if not split:
        return costs
    of_input = sum(times.input_gradient_s for times in split)
    both = of_input + sum(times.weight_gradients_s for times in split)
    return replace(
        costs,
        split_backward=both / sum(times.backward_s for times in split),
        input_gradient_share=of_input / both,
    )


def _processor_share(measured: list[_Measured], threads: int) -> float:
    """Share of the components' time in which processors were busy; a block may also wait."""
    wall_s = sum(kind.timed.wall_s for kind in measured)
    return min(1.0, sum(kind.timed.processor_s for kind in measured) / (wall_s * threads))


def _time_edge(nbytes: int) -> tuple[float, float]:
    """Seconds of latency of a message, and seconds per byte: each is packed once and copied to the receiver once."""
    size = max(nbytes, 8 << 20)  # larger than the caches
    source, target = torch.ones(size, dtype=torch.uint8), torch.zeros(size, dtype=torch.uint8)
    times = []
    for _ in range(7):
        started = time.perf_counter()
        target.copy_(source)
        times.append(time.perf_counter() - started)
    return 2.0e-4, 2.0 * median(times) / size
