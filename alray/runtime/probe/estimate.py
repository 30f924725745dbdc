"""The costs of each component: sizes counted on the meta device, and times estimated from the counts, or given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal, TypeVar

import torch

from alray.config.sections.pipeline import Cost
from alray.config.sections.spec import Spec
from alray.core.accelerator import kind
from alray.core.compat import TorchDispatchMode, tree_iter
from alray.core.counting import counted
from alray.core.errors import PlanError, UserCodeError
from alray.core.randomness.generators import put_back
from alray.models.component import Component, trainable
from alray.models.imported.absent import counting
from alray.models.network import Network
from alray.models.shape import Shape
from alray.planning.prediction.costs import ComponentCosts, Costs
from alray.planning.prediction.machines import BEST, USUAL, WORST, Device, ReachedSpeed
from alray.planning.schedules.table import SCHEDULES
from alray.runtime.device import devices
from alray.runtime.probe.component_memory import component_memory
from alray.runtime.probe.component_work import ComponentWork

ASSUMED_FLOPS_PER_S = 4.0e10
"""The speed of one thread. Only estimates use it: they give the shares of the components, not absolute times."""
ASSUMED_BYTES_PER_S = 1.0e10
_MOST_COUNTED = 32
"""Networks with mini-batches of one size whose counts are kept: a crossover goes to and fro between several methods and
numbers of replicas, and to count takes long."""
_Found = TypeVar("_Found")
Kind = Literal["matrix", "convolution", "other"]


@dataclass(frozen=True, eq=False)
class _Counted:
    """A component without times, what its actions do, and the bytes that its samples and its routes are."""

    component: ComponentCosts
    operations: dict[str, list[Operation]]
    tensors: int  # of its parameters
    moved_bytes: int
    state_bytes: int  # that an update goes through, besides weights and gradients
    together: int  # mini-batches of an update

    def each_mini_batch(self, update: float, gather: float) -> float:
        """What a mini-batch has of an update, and of adding its gradients to those that wait for the update."""
        return update / self.together + (gather if self.together > 1 else 0.0)


def estimate_costs(network: Network, *, batch_size: int, device: torch.device) -> Costs:
    """Costs counted on the meta device, without allocating or computing. Global generators stay as they were.

    The times are the counts over assumed speeds of a thread: they are right relative to each other.
    """
    counted, threads = _count_all(network, batch_size, device), network.spec.resources.threads
    rate = ASSUMED_FLOPS_PER_S * threads
    return _costs(
        network,
        batch_size,
        [_assumed_times(each, rate) for each in counted],
        source="estimated",
        device=devices.device_name(device),
        threads=threads,
    )


def costs_on(network: Network, *, batch_size: int, device: Device, here: torch.device) -> Costs:
    """Costs on a device that is not here: the counted operations by its roofline (`seconds_on`).

    A sender is not busy with its messages: they go from the memory of the device over the link. The times are those of
    whole mini-batches; `in_micro_batches` completes them.

    Args:
        here: the device of this process.

    Raises:
        PlanError: where nothing is published of the device, or of its speed in the numbers of the spec.
    """
    spec = network.spec
    if not device.peaks:
        raise PlanError(
            f"nothing is published of the speed of `{device.name}`",
            hint="describe it in machines.devices; `alray plan` also takes what `alray probe SPEC "
            "--output costs.json` measured there, with --costs costs.json",
            key="machines.nodes",
        )
    if spec.run.precision not in device.peaks:
        raise PlanError(
            f"{device.name} has no published speed in {spec.run.precision}: it has {', '.join(device.peaks)}",
            hint="set run.precision=float32, or choose another device",
            key="run.precision",
        )
    counted = _count_all(network, batch_size, here)
    usual, best, worst = (
        [_times_on(each, spec, device, reached) for each in counted] for reached in (USUAL, BEST, WORST)
    )
    usual_s, least_s, most_s = (sum(each.train_s for each in components) for components in (usual, best, worst))
    return _costs(
        network,
        batch_size,
        usual,
        source="roofline",
        device=device.name,
        threads=1,
        edge_latency_s=0.0,
        edge_s_per_byte=0.0,
        action_overhead_s=0.0,
        origin=f"operations counted, at {USUAL.efficiency:.0%} of the peaks that are published of {device.name} "
        f"({device.source}), {USUAL.bandwidth:.0%} of the bandwidth of its memory, and {1e6 * USUAL.launch_s:.0f} us "
        "for an operation at least",
        spread=(least_s / usual_s, most_s / usual_s),
        spread_origin=f"with {WORST.efficiency:.0%} to {BEST.efficiency:.0%} of the peaks, {WORST.bandwidth:.0%} to "
        f"{BEST.bandwidth:.0%} of the bandwidth, and {1e6 * BEST.launch_s:.0f} to {1e6 * WORST.launch_s:.0f} us for an "
        "operation, which holds published layers of GPT and BERT with 1,000 words or more",
    )


def in_micro_batches(costs: Costs, network: Network, number: int, *, device: Device, here: torch.device) -> Costs:
    """Costs of `costs_on` whose times are also right for so many micro-batches of a mini-batch.

    A plan takes the time of a micro-batch from a straight line over the samples. A small operation takes as long as its
    launch, so counted times lie on no line: by one through 8 micro-batches, 16 in a pipeline of a GPT of 340 million
    parameters took 11 % less than counted. So each number has a line of its own, through its own micro-batch, which is
    counted too: it reads all weights.
    """
    if number == 1:
        return costs
    seconds = partial(seconds_on, spec=network.spec, device=device, reached=USUAL)
    samples = costs.batch_size // number
    if network.needs_two_samples is not None:
        samples = max(2, samples)  # a run refuses one, unless replicas normalise together
    kinds = _training_operations(network, samples, here)
    parts_s = {kind: {name: seconds(operations) for name, operations in parts.items()} for kind, parts in kinds.items()}

    def fixed_s(whole_s: float, part_s: float) -> float:
        return max(0.0, (part_s - whole_s / number) / (1 - 1 / number))  # below 0 by rounding alone

    components = []
    for index, component in enumerate(costs.components):
        part_s = parts_s[network.alike(index)]
        components.append(
            replace(
                component,
                forward_fixed_s=fixed_s(component.forward_s, part_s["forward_s"]),
                backward_fixed_s=fixed_s(component.backward_s, part_s["label_s"] + part_s["backward_s"]),
            )
        )
    return replace(costs, components=tuple(components))


@lru_cache(maxsize=_MOST_COUNTED)
def _count_all(network: Network, batch_size: int, device: torch.device) -> tuple[_Counted, ...]:
    counted = _of_kinds(network, batch_size, device, lambda index: _count(network, index, batch_size))
    return tuple(counted[network.alike(index)] for index in range(len(network)))


@lru_cache(maxsize=_MOST_COUNTED)
def _training_operations(network: Network, samples: int, device: torch.device) -> dict[str, dict[str, list[Operation]]]:
    """What F, L and B of each kind of component do with so many samples."""
    names = ("forward_s", "label_s", "backward_s")
    return _of_kinds(
        network,
        samples,
        device,
        lambda index: _operations(network, network.component(index, "meta"), samples, names),
    )


def _of_kinds(
    network: Network, samples: int, device: torch.device, count: Callable[[int], _Found]
) -> dict[str, _Found]:
    """What `count` finds with so many samples of the first component of each kind, whose components differ in their
    weights only."""
    found: dict[str, _Found] = {}
    with put_back(device):
        for index in range(len(network)):
            if network.alike(index) not in found:
                try:
                    found[network.alike(index)] = count(index)
                except UserCodeError as error:
                    hint = (
                        f"it was tried with {counted(samples, 'sample')} without values, where operations are counted; "
                        "code that reads values gets ones"
                    )
                    raise error.with_hint(hint) from error
    return found


def _operations(
    network: Network, component: Component, samples: int, names: Sequence[str]
) -> dict[str, list[Operation]]:
    """What these actions of a component on the meta device do with so many samples, by their names in
    `ComponentCosts`."""
    incoming = network.training_input(component.index, samples, "meta")
    actions = ComponentWork(network, component, incoming).actions()
    found = {}
    with counting():
        for name in names:
            with OperationCounter() as counter:
                actions[name]()
            found[name] = counter.operations
    return found


def _costs(network: Network, batch_size: int, components: Sequence[ComponentCosts], **known: Any) -> Costs:
    spec = network.spec
    method = network.method
    labels = method.given_labels["labels"].empty(batch_size, "meta")
    read = [*network.incoming(0, batch_size, "meta").values(), labels]
    return Costs(
        batch_size=batch_size,
        components=tuple(components),
        batch_bytes=sum(tensor.nbytes for tensor in read),
        copy_bytes=0 if method.copy_every is None else _nbytes(method.copied(network.encoders), 1),
        copy_every=method.copy_every or 1,
        precision=spec.run.precision,
        optimizer=spec.optimizer.kind,
        accumulate=spec.optimizer.accumulate,
        method=spec.method.kind,
        compiled=spec.run.compile,
        **known,
    )


def _assumed_times(counted: _Counted, rate: float) -> ComponentCosts:
    """The times of a component by assumed speeds.

    Args:
        rate: operations a second.
    """
    flops = {name: sum(each.flops for each in operations) for name, operations in counted.operations.items()}
    component, moved_s = counted.component, counted.moved_bytes / ASSUMED_BYTES_PER_S
    routed_s = component.route_bytes / ASSUMED_BYTES_PER_S
    updated_bytes = 2 * component.gradient_bytes + counted.state_bytes  # frozen weights are not updated
    gathered_bytes = 2 * component.gradient_bytes
    return replace(
        component,
        forward_s=flops["forward_s"] / rate + moved_s,
        backward_s=(flops["label_s"] + flops["backward_s"]) / rate + 2.0 * moved_s,
        label_s=flops["label_s"] / rate,
        update_s=counted.each_mini_batch(updated_bytes, gathered_bytes) / ASSUMED_BYTES_PER_S,
        infer_s=flops["infer_s"] / rate + moved_s + component.ends_route * routed_s,
        route_s=flops["route_s"] / rate + routed_s,
    )


def _times_on(counted: _Counted, spec: Spec, device: Device, reached: ReachedSpeed) -> ComponentCosts:
    """The times of a component on a device. An update reads and writes weights and state, and reads gradients; frozen
    weights it leaves as they are. To add a gradient to one that waits reads both and writes one."""
    times: dict[str, Any] = {name: seconds_on(done, spec, device, reached) for name, done in counted.operations.items()}
    component = counted.component
    updated_bytes = 3 * component.gradient_bytes + 2 * counted.state_bytes
    moved_bytes = counted.each_mini_batch(updated_bytes, 3 * component.gradient_bytes)
    launches = counted.each_mini_batch(counted.tensors, counted.tensors)
    times["backward_s"] += times["label_s"]
    update_s = moved_bytes / (reached.bandwidth * device.bytes_per_s) + launches * reached.launch_s
    return replace(component, update_s=update_s, **times)


def _nbytes(shapes: Mapping[str, Shape], samples: int) -> int:
    """Bytes of tensors of these shapes, which are those of one sample."""
    return samples * sum(shape.sample_bytes for shape in shapes.values())


def given_costs(counted: Costs, given: Sequence[Cost], *, batch_size: int) -> Costs:
    """Counted sizes, with the training times of the spec, which gives L and B together: `label_s` is 0.

    Inference is as much slower, or faster, than counted as the forward is.

    Args:
        counted: for the samples of a replica, which takes its share of the forward and the backward.
        given: for a mini-batch of `batch_size` samples, a component each.

    Raises:
        PlanError: where there are more or fewer than components.
    """
    if len(given) != len(counted.components):
        raise PlanError(
            f"pipeline.costs has {len(given)} entries, the model has {len(counted.components)} components",
            key="pipeline.costs",
            hint="give one entry for each component, or null to measure",
        )
    share = counted.batch_size / batch_size

    def timed(component: ComponentCosts, entry: Cost) -> ComponentCosts:
        forward_s = share * entry.forward_s
        slower = forward_s / component.forward_s if component.forward_s else 1.0
        return replace(
            component,
            forward_s=forward_s,
            backward_s=share * entry.backward_s,
            update_s=entry.update_s,
            infer_s=slower * component.infer_s,
            route_s=slower * component.route_s,
            label_s=0.0,
        )

    components = tuple(timed(*each) for each in zip(counted.components, given, strict=True))
    return replace(counted, source="given", components=components)


def _count(network: Network, index: int, batch_size: int) -> _Counted:
    """Sizes of one component, and its operations."""
    component = network.component(index, "meta")
    facts = network.encoders[index]
    # The time of an update follows from bytes; optimizers that read a number of theirs cannot run here.
    names = ("forward_s", "label_s", "backward_s", "infer_s", "route_s")
    operations = _operations(network, component, batch_size, names)
    parameters = [parameter for parameter in component.parameters() if parameter.requires_grad]
    gradient_bytes = sum(parameter.nbytes for parameter in parameters)
    optimizer_bytes = sum(optimizer.state_bytes() for optimizer in component.optimizers().values())
    if component.weight_average is not None:
        late = SCHEDULES[network.spec.schedule].gradient_delay > 0
        optimizer_bytes += component.weight_average.state_bytes(late=late)
    together = network.spec.optimizer.accumulate
    state_bytes = optimizer_bytes - (gradient_bytes if together > 1 else 0)  # without gradients that wait
    replicas = network.spec.replicas
    outer_copies = 0 if replicas.synchronise == "every_step" else replicas.synchronise.copies
    s_bytes = _nbytes(network.method.goes_up(facts), batch_size)
    label_bytes = _nbytes(network.method.labels_out(index), batch_size)
    edge, boundary = network.edge(index), network.boundary(index)
    gradients = {name: shape for name, shape in network.gradient_edge(index).items() if name != "mask"}
    turn, adds_up = trainable(component.turn), component.adds_up
    trains_on = torch.device(kind(network.spec.resources.resolved_device))
    costs = ComponentCosts(
        name=facts.name,
        forward_s=0.0,
        backward_s=0.0,
        update_s=0.0,
        infer_s=0.0,
        route_s=0.0,
        parameters=sum(parameter.numel() for parameter in parameters),
        parameter_bytes=sum(value.nbytes for value in component.weights().values()),
        gradient_bytes=gradient_bytes,
        optimizer_bytes=optimizer_bytes,
        average_bytes=gradient_bytes if replicas.engine == "graph" else 0,  # the gradients of DDP lie in its buckets
        average_state_bytes=(outer_copies + replicas.compression.keeps_error) * gradient_bytes,
        output_bytes=_nbytes(edge, batch_size),
        label_bytes=label_bytes,
        compressed_gradient_bytes=None if boundary is None else _nbytes(gradients, batch_size),
        uncompressed_bytes=None if boundary is None else s_bytes + label_bytes,
        mask_bytes=batch_size * edge["mask"].sample_bytes if "mask" in edge else 0,
        infer_bytes=_nbytes(network.inference_edge(index), batch_size),
        route_bytes=batch_size * network.comes_down(index).sample_bytes,
        output_shape=tuple(facts.output),
        ends_route=network.ends_route(index),
        parts=component.part_parameters(),
        along_parameters=sum(map(trainable, (component.f, component.passage, component.decoder)))
        + (turn if adds_up else 0),
        turn_parameters=0 if adds_up else turn,
        **component_memory(network, index, batch_size, trains_on),
    )
    moved_bytes = s_bytes + batch_size * facts.input.sample_bytes
    return _Counted(costs, operations, len(parameters), moved_bytes, state_bytes, together)


@dataclass(frozen=True)
class Operation:
    """One operation.

    Attributes:
        flops: floating-point operations, those of matrix products and convolutions alone.
        nbytes: that it reads and writes.
    """

    kind: Kind
    flops: int
    nbytes: int


class OperationCounter(TorchDispatchMode):
    """Keeps the operations that run inside it; views, which compute nothing, are left out."""

    def __init__(self) -> None:
        from torch.utils.flop_counter import flop_registry  # with it comes Triton

        super().__init__()
        self.operations: list[Operation] = []
        self._formulas = flop_registry

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        packet = getattr(func, "overloadpacket", func)
        if packet not in self._formulas and func is not torch.ops.prim.device.default:
            with self:  # composite operations count as those that they are made of
                made_of = func.decompose(*args, **given) if hasattr(func, "decompose") else NotImplemented
            if made_of is not NotImplemented:
                return made_of
        result = func(*args, **given)
        inputs, outputs = list(_tensors((args, given))), list(_tensors(result))
        read = {tensor.untyped_storage()._cdata for tensor in inputs}
        formula: Callable[..., int] | None = self._formulas.get(packet)
        writes = any(tensor.untyped_storage()._cdata not in read for tensor in outputs)
        if formula is not None or writes or func._schema.is_mutable:
            flops = formula(*args, **given, out_val=result) if formula is not None else 0
            kind: Kind = "other" if not flops else "convolution" if "conv" in str(packet) else "matrix"
            self.operations.append(Operation(kind, flops, sum(map(_read_bytes, (*inputs, *outputs)))))
        return result


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return (each for each in tree_iter(value) if isinstance(each, torch.Tensor))


def _read_bytes(tensor: torch.Tensor) -> int:
    """The bytes that reading a tensor takes: a dimension that is expanded is read once."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride or size == 0 else 1
    return count * tensor.element_size()


def seconds_on(operations: Sequence[Operation], spec: Spec, device: Device, reached: ReachedSpeed) -> float:
    """Seconds of these operations, one after another, by the roofline of a device.

    Each takes the longest of three: its operations at a share of the peak, its bytes at a share of the bandwidth of the
    memory, and the launch of a kernel. Williams, Waterman and Patterson, "Roofline: an insightful visual performance
    model" (2009).

    Args:
        spec: says the type of numbers.
        reached: what the device reaches of what is published.
    """
    total, bytes_per_s = 0.0, reached.bandwidth * device.bytes_per_s
    for each in operations:
        peak = reached.efficiency * _peak(device, each.kind, spec)
        total += max(each.flops / peak, each.nbytes / bytes_per_s, reached.launch_s)
    return total


def _peak(device: Device, kind: Kind, spec: Spec) -> float:
    peaks, tf32 = device.peaks, spec.resources.tf32
    if spec.run.precision != "float32":
        return peaks[spec.run.precision]
    rounds = tf32 == "all" or (tf32 == "convolutions" and kind == "convolution")
    return peaks.get("tf32", peaks["float32"]) if rounds else peaks["float32"]
