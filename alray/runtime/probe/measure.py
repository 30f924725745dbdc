"""The probe: measures the times of each component on this machine, and how much other stages slow it down.

A component that is repeated alone finds its weights and activations in the processor's caches. In a run, the other
components of its stage have used the caches since, but its input was written just before. So neighbours are measured
together: all of them go through F, then through L, B and U, each one reads what the one below it has just computed, and
each action is timed.

A micro-batch does not take its share of the time of a mini-batch: each operation has an overhead, and smaller tensors
stay in the processor's caches. A split backward pass (`alray.models.split_backward`) has its own overhead. So both are
measured, at the size of the spec's micro-batches. What is timed is the `Work` that trains.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import torch

from alray.core.counting import counted
from alray.core.errors import FAULTS_OF_USER_CODE, RunError, UserCodeError
from alray.data.batches import Batch
from alray.models.component import Component
from alray.models.encoder import EncoderFacts, Tensors
from alray.models.network import Network
from alray.models.optimizers import Accumulation
from alray.models.own_state import require_same_buffers, unsaved_buffers
from alray.models.precision import require_precision
from alray.planning.prediction.costs import ComponentCosts, Costs
from alray.runtime.device import devices
from alray.runtime.device.out_of_memory import is_out_of_memory, problem_of, words_of
from alray.runtime.probe.all_reduce import time_reduction
from alray.runtime.probe.component_work import ComponentWork
from alray.runtime.probe.contention import companions, measure_contention
from alray.runtime.probe.estimate import estimate_costs
from alray.runtime.probe.other_programs import Machine, taken
from alray.runtime.probe.timing import ComponentTimings, ProbedAction, Timing, time_actions
from alray.runtime.stage.work.backpropagation import MicroBatching

_WORK_S = 0.06  # least time of the work that is measured alone and next to other stages
_LEAST = 2  # mini-batches of it, however long: one does not tell how uneven they are
_OF_A_RUN = 0.07
"""Processors that a run takes besides its computing, counted beside two stages: of Ray 0.028, of the driver 0.011, of
the threads of both stages for messages and for Ray 0.027."""
_TRAINING = ("forward_s", "label_s", "backward_s", "update_s")
_TOGETHER_S = 0.1  # of one mini-batch in neighbours, after which none is added that is of a known kind
_TOLERANCE = 1e-3  # of the largest output; far above what the order of sums changes, and far below any influence
_TOGETHER_BYTES = 64 << 20  # that neighbours work on which are measured together: a few times a processor's caches
_ENDLESS = sys.maxsize  # micro-batches or mini-batches that add up to an update, of which none is the last one


@dataclass(frozen=True)
class Surroundings:
    """How the components will run in training, besides what the spec says."""

    device: torch.device
    pipeline: bool = False  # whether gradients travel between stages
    micro_batches: int = 1  # equal parts of a mini-batch
    others: int = 0  # number of other stages that compute on this machine at the same time


def probe_costs(
    network: Network, batch: Batch, surroundings: Surroundings, *, wait_until_quiet: Callable[[], None] = lambda: None
) -> Costs:
    """Costs measured on a real mini-batch; each time is the median of its repeats.

    Components that differ in their weights only have the same costs. Threads, determinism and random numbers of the
    process are restored.

    Args:
        wait_until_quiet: returns when no other process of this run takes processors; until then only sizes are counted.

    Raises:
        RunError: if a component fails.
    """
    device, spec = surroundings.device, network.spec
    threads = spec.resources.threads
    used = threads * (1 + surroundings.others)
    incoming = batch.with_labels(device, network.dtype)
    names = [network.alike(index) for index in range(len(network))]
    kinds: dict[str, ComponentTimings] = {}
    passed_on: dict[str, Tensors] = {}
    busiest: dict[int, ComponentWork] = {}
    busiest_s = 0.0
    with companions(surroundings.others, threads=threads) as others:
        counted = estimate_costs(network, batch_size=len(batch.labels), device=device)
        others.wait_until_ready()
        others.work_on(sum(map(_bytes_of, counted.components)) // (surroundings.others + 1))
        wait_until_quiet()
        machine = Machine()
        with devices.configured(threads, spec.run.deterministic, device, spec.resources.tf32):
            require_precision(spec.run.precision, device)
            for indices in divide(names, counted):
                new = {names[index] for index in indices} - set(kinds)
                works = _begun(network, names, indices, incoming, passed_on)
                timing = Timing(len(new) / len(set(names)), device, partial(_faults_of, network))
                measured = _measured(network, works, surroundings, timing)
                for name in new:
                    alike = [index for index in works if names[index] == name]
                    kinds[name] = ComponentTimings.mean_of([measured[index] for index in alike])
                    work, seconds, together = works[alike[0]], kinds[name].seconds, spec.optimizer.accumulate
                    with _faults_of(network, alike[0]):
                        seconds["update_s"] /= together
                        if together > 1:
                            seconds["update_s"] += time_gathering(work.component, Timing(timing.share, device))
                        seconds["reduce_s"] = time_reduction(work.component, spec.replicas, together, network.load)
                    if network.tokens is not None:
                        require_no_later_position(
                            work.component, network.encoders[alike[0]], work.incoming, network.tokens
                        )
                together_s = sum(each.seconds[name] for each in measured.values() for name in _TRAINING)
                if together_s >= busiest_s:
                    busiest, busiest_s = works, together_s
                # What no component above still needs takes no memory of the device.
                passed_on = {name: passed_on[name] for name in passed_on.keys() & set(names[indices.stop - 1 :])}
            other_processors = machine.other_processors()
            local_losses = network.method.local_losses
            contention = 1.0
            jitter_s = 0.0
            if surroundings.others:
                contention, jitter_s = measure_contention(
                    partial(_times_of, busiest, local_losses=local_losses), others
                )
                # What the rest of a run takes from a stage where the stages leave no processor free.
                processors = len(os.sched_getaffinity(0))
                contention += _OF_A_RUN / processors if used >= processors else 0.0
            edge_s_per_byte = _time_packing(max(component.output_bytes for component in counted.components))
    components = [kinds[name] for name in names]
    busy_s = sum(kind.processor_s for kind in components)  # a block may also wait
    costs = replace(
        counted,
        source="probe",
        components=tuple(_with_times(*each, surroundings) for each in zip(counted.components, components, strict=True)),
        processor_share=min(1.0, busy_s / (threads * sum(kind.wall_s for kind in components))),
        edge_s_per_byte=edge_s_per_byte,
        contention=contention,
        beside=len(others),
        jitter_s=jitter_s,
        taken_processors=taken(other_processors, used) if device.type == "cpu" else 0.0,
    )
    # The ratios of a split backward, where micro-batches were measured.
    split = [kind.micro_batch for kind in components if kind.micro_batch.get("input_gradient_s", 0.0) > 0]
    if not split or not surroundings.pipeline:
        return costs
    of_input = sum(seconds["input_gradient_s"] for seconds in split)
    both = of_input + sum(seconds["weight_gradients_s"] for seconds in split)
    return replace(
        costs,
        split_backward=both / sum(seconds["backward_s"] for seconds in split),
        input_gradient_share=of_input / both,
    )


def _begun(
    network: Network,
    names: Sequence[str],
    indices: range,
    incoming: Tensors,
    passed_on: dict[str, Tensors],
) -> dict[int, ComponentWork]:
    """Neighbours, by their index, each after one mini-batch.

    Components of known kinds are left out where each one would be compiled, and where a mini-batch takes long: then
    caches matter little.

    Args:
        incoming: what the first component of the network gets.
        passed_on: what each kind of component passes on. This adds the new kinds.
    """
    works: dict[int, ComponentWork] = {}
    took_s = 0.0
    for index in indices:
        name = names[index]
        if name in passed_on and (network.spec.run.compile or took_s > _TOGETHER_S):
            continue
        given = passed_on[names[index - 1]] if index > 0 else incoming
        with _faults_of(network, index):
            component = network.component(index, incoming["s"].device)
            for optimizer in component.optimizers().values():
                optimizer.update_at_every_step()
            work = ComponentWork(network, component, given)
            passed, seconds = _one_mini_batch(work)
            if seconds > _TOGETHER_S:  # the first time, libraries also prepare themselves
                _, seconds = _one_mini_batch(work)
        works[index] = work
        passed_on.setdefault(name, passed)
        took_s += seconds
    return works


def _one_mini_batch(work: ComponentWork) -> tuple[Tensors, float]:
    """What a component passes on, and the seconds of F, L and B."""
    began = time.perf_counter()
    work.forward()
    work.label()
    passed_on = work.passed_up
    work.backward()
    return passed_on, time.perf_counter() - began


def _measured(
    network: Network, works: Mapping[int, ComponentWork], surroundings: Surroundings, timing: Timing
) -> dict[int, ComponentTimings]:
    """The measurements of neighbours, by their index."""
    buffers = {
        index: {name: buffer.clone() for name, buffer in unsaved_buffers(each.component).items()}
        for index, each in works.items()
    }
    local_losses = network.method.local_losses
    timed = time_actions(mini_batch_of(works, local_losses=local_losses), timing)
    for index, each in works.items():
        require_same_buffers(buffers[index], unsaved_buffers(each.component), index)
    if surroundings.micro_batches > 1 and not local_losses:
        samples = len(next(iter(works.values())).incoming["s"]) // surroundings.micro_batches
        of_parts = partial(_faults_of, network, tried_on=f"a micro-batch of {counted(samples, 'sample')}")
        for index, seconds in time_micro_batches(network, works, samples, replace(timing, blaming=of_parts)).items():
            timed[index].micro_batch = seconds
    return timed


@contextmanager
def _faults_of(network: Network, index: int, tried_on: str = "the first mini-batch") -> Iterator[None]:
    """Turn an error of the block into one that names component `index`, and what it was tried on."""
    try:
        yield
    except FAULTS_OF_USER_CODE as error:
        if is_out_of_memory(error):
            block = network.encoders[index].name
            message = f"component {index} (block `{block}`) ran out of memory on {tried_on}: {words_of(error)}"
            hint = "use a smaller data.batch_size, a smaller component, or a device with more memory"
            problem = replace(problem_of(error, message, hint), key=f"model.components[{index}]")
            raise RunError.of((problem,)) from error
        tried = f"it was tried on {tried_on}; correct its code, or the spec's fields for it"
        hint = devices.hint_where_not_deterministic(error) or tried
        if isinstance(error, UserCodeError):
            raise error.with_hint(hint) from error
        raise RunError(
            f"component {index} (block `{network.encoders[index].name}`) raised {type(error).__name__}: {error}",
            key=f"model.components[{index}]",
            hint=hint,
        ) from error


def _times_of(works: Mapping[int, ComponentWork], *, local_losses: bool) -> list[tuple[float, float]]:
    """The seconds of a few mini-batches, each through all these neighbours, and those of processors.

    One component alone would stay in its processor's caches, and so lose less beside other stages than a stage does.

    Processor seconds tell how much slower it is beside others. Wall time would also count the time that other processes
    run.
    """
    trained = [each for each in mini_batch_of(works, local_losses=local_losses) if each.name in _TRAINING]
    began, found = time.perf_counter(), list[tuple[float, float]]()
    while len(found) < _LEAST or time.perf_counter() - began < _WORK_S:
        started, busy = time.perf_counter(), time.process_time()
        for action in trained:
            action.run()
        found.append((time.perf_counter() - started, time.process_time() - busy))
    return found


def _with_times(component: ComponentCosts, kind: ComponentTimings, surroundings: Surroundings) -> ComponentCosts:
    times: dict[str, Any] = {**kind.seconds}
    times["backward_s"] += times["label_s"]  # B of the plan is both
    component = replace(component, **times)
    if not kind.micro_batch:
        return component
    share, part_s = 1.0 / surroundings.micro_batches, kind.micro_batch
    return replace(
        component,
        forward_fixed_s=(part_s["forward_s"] - component.forward_s * share) / (1.0 - share),
        backward_fixed_s=(part_s["backward_s"] - component.backward_s * share) / (1.0 - share),
    )


def _time_packing(nbytes: int) -> float:
    """Seconds per byte of a message: each is packed once and copied to the receiver once."""
    size = max(nbytes, 8 << 20)  # larger than the caches
    source, target = torch.ones(size, dtype=torch.uint8), torch.zeros(size, dtype=torch.uint8)
    times = []
    for _ in range(7):
        started = time.perf_counter()
        target.copy_(source)
        times.append(time.perf_counter() - started)
    return 2.0 * median(times) / size


def time_gathering(component: Component, timing: Timing) -> float:
    """Seconds in which a mini-batch adds its gradients to those that wait for an update (`optimizer.accumulate`).

    The probe repeats a few mini-batches, and none of them may complete an update. So each of them updates, and what all
    of them do besides is measured here.
    """
    optimizers = component.optimizers().values()
    gathering = [
        (Accumulation(each.parameters, _ENDLESS), [(own, torch.zeros_like(own)) for own in each.parameters])
        for each in optimizers
    ]

    def gather() -> None:
        for accumulation, gradients in gathering:
            for parameter, gradient in gradients:
                parameter.grad = gradient
            accumulation.gather()

    for accumulation, gradients in gathering:  # the first one is kept as the sum itself
        for parameter, gradient in gradients:
            parameter.grad = torch.zeros_like(gradient)
        accumulation.gather()
    timed = time_actions([ProbedAction(component.index, "update_s", gather)], timing)
    return timed[component.index].seconds["update_s"]


@torch.no_grad()
def require_no_later_position(component: Component, facts: EncoderFacts, incoming: Tensors, tokens: int) -> None:
    """Raise RunError if what the encoder gives for a position depends on the last position of the window.

    A label of `task: next_token` is the token after a position, so such a network would learn to copy its input.

    Args:
        incoming: a mini-batch, with `s` [N, T] int64 of tokens or [N, T, D].
        tokens: how many there are.
    """
    s = incoming["s"]
    other = s.clone()
    other[:, -1] = s[:, -1] + 1 if s.is_floating_point() else (s[:, -1] + 1) % tokens
    component.f.eval()
    before, after = (component.f.run({**incoming, "s": each}, 0)["s"][:, :-1] for each in (s, other))
    component.f.train()
    largest = float(before.abs().max()) if before.numel() else 0.0
    if not torch.allclose(before, after, rtol=0.0, atol=_TOLERANCE * largest):
        raise RunError(
            f"component {component.index} (block `{facts.name}`) sees later positions: another last token changes what "
            "it gives for those before, so it would read the next token instead of learning it",
            key=facts.key(component.index),
            hint="mask its attention, such as by is_causal=True",
        )


def time_micro_batches(
    network: Network, works: Mapping[int, ComponentWork], samples: int, timing: Timing
) -> dict[int, dict[str, float]]:
    """The seconds of neighbours that compute a micro-batch as a stage does: first up, then down.

    The backward pass adds to the gradients of earlier micro-batches. Its two parts take 0 s where it is not split, and
    where the input needs no gradient. A forward before a split backward notes inputs of layers, and takes longer. What
    it takes longer is added to the first part: the micro-batches that are split decide how often it counts.

    The backward pass of a compiled component is not split: it goes through its graph once.

    Args:
        works: of components that do not have local losses, on a mini-batch.
        samples: of a micro-batch.
    """

    def cut(cut: MicroBatching) -> dict[int, ComponentWork]:
        parts = {}
        for index, each in works.items():
            with timing.blaming(index):
                part = {name: tensor[:samples] for name, tensor in each.incoming.items()}
                parts[index] = ComponentWork(network, each.component, part, cut)
        return parts

    parts = cut(MicroBatching(_ENDLESS))
    backward = actions_of(parts, "backward_s")[::-1]
    whole = time_actions([*actions_of(parts, "forward_s"), *backward], timing)
    halves: dict[int, ComponentTimings] = {}
    none = {"input_gradient_s": 0.0, "weight_gradients_s": 0.0}
    # The first component of the network has no gradient for its input.
    if not network.spec.run.compile and any(index > 0 for index in works):
        parts = cut(MicroBatching(_ENDLESS, {(0, 0)}))
        parts.pop(0, None)
        names = ("forward_s", "input_gradient_s", "weight_gradients_s")
        forward, inputs, weights = (actions_of(parts, name) for name in names)
        halves = time_actions([*forward, *inputs[::-1], *weights[::-1]], timing)
        for index, timed in halves.items():
            longer_s = timed.seconds["forward_s"] - whole[index].seconds["forward_s"]
            timed.seconds["input_gradient_s"] += max(0.0, longer_s)
    for each in works.values():
        for optimizer in each.component.optimizers().values():
            optimizer.zero_grad()
    return {
        index: {**none, **(halves[index].seconds if index in halves else {}), **each.seconds}
        for index, each in whole.items()
    }


def divide(kinds: Sequence[str], costs: Costs) -> list[range]:
    """The components of a network, divided into neighbours that work on at most `_TOGETHER_BYTES`, or single ones.

    Neighbours that are all of earlier kinds are left out.

    Args:
        kinds: of the components, in order; those of one kind differ in their weights only.
    """
    sizes = [_bytes_of(component) for component in costs.components]
    divided, known, start = [], set[str](), 0
    while start < len(kinds):
        stop = start + 1
        while stop < len(kinds) and sum(sizes[start : stop + 1]) <= _TOGETHER_BYTES:
            stop += 1
        if not known.issuperset(kinds[start:stop]):
            divided.append(range(start, stop))
        known.update(kinds[start:stop])
        start = stop
    return divided


def _bytes_of(component: ComponentCosts) -> int:
    """Bytes that a component works on in a mini-batch: weights, gradients, the optimizer's state and activations."""
    return component.parameter_bytes + component.gradient_bytes + component.optimizer_bytes + component.activation_bytes


def actions_of(works: Mapping[int, ComponentWork], name: str) -> list[ProbedAction]:
    """An action of all neighbours, the first one first. Each computes with what its neighbours have just computed."""
    return [
        ProbedAction(index, name, each.actions(works.get(index - 1), works.get(index + 1))[name])
        for index, each in works.items()
    ]


def mini_batch_of(works: Mapping[int, ComponentWork], *, local_losses: bool) -> list[ProbedAction]:
    """All actions of a mini-batch of neighbours, with its evaluation, in the order of a stage."""
    names = ("forward_s", "label_s", "backward_s", "update_s", "infer_s", "route_s")
    forward, label, backward, update, infer, route = (actions_of(works, name) for name in names)
    return [*forward, *label, *(backward if local_losses else backward[::-1]), *update, *infer, *route[::-1]]
