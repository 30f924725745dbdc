"""What each component costs: sizes counted on the meta device, times measured or estimated from the count."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from alray.data.batches import Batch
from alray.errors import RunError
from alray.nn.boundary import row_major
from alray.nn.component import AssociatedComponent, BackpropagationComponent, Component, LocalComponent, Tensors
from alray.nn.faults import FAULTS_OF_USER_CODE
from alray.nn.network import Network
from alray.plan.costs import ComponentCosts, Costs
from alray.stage import device as devices

ASSUMED_FLOPS_PER_S = 4.0e10
"""Of one thread; only estimates use it, and an estimate is for shares between components, not for times."""
ASSUMED_BYTES_PER_S = 1.0e10

_PROBE_S = 0.6  # spent on one component, at least _LEAST_REPEATS times
_LEAST_REPEATS = 3
_MOST_REPEATS = 30
_WARM_UPS = 2


def estimate_costs(network: Network, *, batch_size: int, device: torch.device, threads: int) -> Costs:
    """Costs counted on the meta device: nothing is allocated, nothing is run. The global stream stays as it was."""
    with torch.random.fork_rng(devices=[]):
        components = tuple(_count(network, index, batch_size, threads) for index in range(len(network)))
    return Costs(
        source="estimated",
        device=devices.device_name(device),
        threads=threads,
        batch_size=batch_size,
        components=components,
    )


def given_costs(estimated: Costs, given: Any) -> Costs:
    """Sizes as counted, times of training as the spec gives them."""
    components = tuple(
        replace(component, forward_s=entry.forward_s, backward_s=entry.backward_s, update_s=entry.update_s)
        for component, entry in zip(estimated.components, given, strict=True)
    )
    return replace(estimated, source="given", components=components)


def probe_costs(network: Network, batch: Batch, *, device: torch.device, threads: int, deterministic: bool) -> Costs:
    """Costs measured here, one component after another, on a real mini-batch, each at the median of its repeats.

    Leaves the process as it was: threads, determinism and random numbers.
    """
    counted = estimate_costs(network, batch_size=len(batch.labels), device=device, threads=threads)
    incoming: Tensors = {
        "s": batch.samples.to(device, network.dtype) if batch.samples.is_floating_point() else batch.samples.to(device),
        "labels": batch.labels.to(device),
    }
    measured = []
    wall_s = processor_s = 0.0
    with devices.settled(threads, deterministic, device):
        for index, component in enumerate(counted.components):
            try:
                timed = _time_component(network.component(index, device), incoming)
            except FAULTS_OF_USER_CODE as error:
                raise RunError(
                    f"component {index} (block `{component.name}`) raised {type(error).__name__}: {error}",
                    key=f"model.components[{index}]",
                    mend="it was tried on the first mini-batch; mend the block, or the spec's fields for it",
                ) from error
            measured.append(replace(component, **timed.medians))
            wall_s, processor_s = wall_s + timed.wall_s, processor_s + timed.processor_s
            incoming = timed.passed_on
        latency_s, per_byte_s = _time_edge(max(component.output_bytes for component in counted.components))
    return replace(
        counted,
        source="probe",
        components=tuple(measured),
        processor_share=min(1.0, processor_s / (wall_s * threads)),
        edge_latency_s=latency_s,
        edge_s_per_byte=per_byte_s,
    )


@dataclass(frozen=True)
class _Timed:
    """One component's medians by the names of `ComponentCosts`, and all the time spent on it."""

    medians: dict[str, Any]
    wall_s: float
    processor_s: float  # over all threads
    passed_on: Tensors


def _time_component(component: Component, incoming: Tensors) -> _Timed:
    run = _Exercise(component, incoming)
    samples: dict[str, list[float]] = {name: [] for name in run.parts}
    began = time.perf_counter()
    processor_s = 0.0
    while True:
        repeats = len(samples["forward_s"])
        spent = time.perf_counter() - began
        if repeats >= _WARM_UPS + _MOST_REPEATS or (repeats >= _WARM_UPS + _LEAST_REPEATS and spent > _PROBE_S):
            break
        for name, part in run.parts.items():
            started, busy = time.perf_counter(), time.process_time()
            part()
            if incoming["s"].is_cuda:
                torch.cuda.synchronize()
            samples[name].append(time.perf_counter() - started)
            processor_s += time.process_time() - busy
    medians = {name: median(values[_WARM_UPS:]) for name, values in samples.items()}
    return _Timed(medians, sum(map(sum, samples.values())), processor_s, run.passed_on)


class _Exercise:
    """One component's F, B, U, E and D, to be run one after another."""

    def __init__(self, component: Component, incoming: Tensors) -> None:
        self.component, self.incoming = component, incoming
        self.passed_on: Tensors = {}
        self._loss: torch.Tensor | None = None
        self._seed: torch.Tensor | None = None
        self.parts: dict[str, Callable[[], None]] = {
            "forward_s": self._forward,
            "backward_s": self._backward,
            "update_s": self._update,
            "infer_s": self._infer,
            "route_s": self._route,
        }

    def _forward(self) -> None:
        if isinstance(self.component, LocalComponent):
            self.passed_on = self.component.forward_step(self.incoming, 0)
            return
        assert isinstance(self.component, BackpropagationComponent)
        s = self.incoming["s"].detach()
        if s.is_floating_point() and self.component.index > 0:
            s.requires_grad_()  # its gradient is part of the cost
        out = row_major(self.component.f.run(s, 0))
        self.passed_on = {**self.incoming, "s": out.detach()}
        if self.component.head is not None:
            self._loss = functional.cross_entropy(self.component.head(out), self.incoming["labels"])
        else:
            self._loss, self._seed = out, torch.ones_like(out)

    def _backward(self) -> None:
        if isinstance(self.component, LocalComponent):
            self.component.backward_step()
            return
        for optimizer in self.component.optimizers().values():
            optimizer.zero_grad()
        assert self._loss is not None
        if self._loss.requires_grad:
            self._loss.backward(self._seed)
        self._loss = self._seed = None

    def _update(self) -> None:
        # A rate of 0 leaves the weights as they are, so that repeats measure the same thing.
        for optimizer in self.component.optimizers().values():
            optimizer.step(0.0)

    @torch.no_grad()
    def _infer(self) -> None:
        self.component.eval()
        if isinstance(self.component, LocalComponent):
            self.component.code(self.component.infer(self.incoming["s"], 0))
        elif isinstance(self.component, BackpropagationComponent):
            self.component.f.run(self.incoming["s"], 0)
        self.component.train()

    @torch.no_grad()
    def _route(self) -> None:
        if isinstance(self.component, AssociatedComponent):
            self.component.decode(self.passed_on["t"])


def _time_edge(nbytes: int) -> tuple[float, float]:
    """Latency of a message, and seconds a byte takes: it is packed once, and once brought to the other processor."""
    size = max(nbytes, 8 << 20)  # more than a cache holds
    source, target = torch.ones(size, dtype=torch.uint8), torch.zeros(size, dtype=torch.uint8)
    times = []
    for _ in range(7):
        started = time.perf_counter()
        target.copy_(source)
        times.append(time.perf_counter() - started)
    return 2.0e-4, 2.0 * median(times) / size


def _count(network: Network, index: int, batch_size: int, threads: int) -> ComponentCosts:
    """Sizes of one component, and times as the work it does over an assumed rate."""
    component = network.component(index, "meta")
    link = network.links[index]
    incoming: Tensors = {"s": link.input.empty(batch_size, "meta")}
    with torch.device("meta"):
        if network.spec.method.kind == "associated_learning" and index > 0:
            incoming["t"] = torch.empty(batch_size, network.spec.method.label_dim, dtype=network.dtype)
        incoming["labels"] = torch.zeros(batch_size, dtype=torch.int64)
    run = _Exercise(component, incoming)
    kept: dict[int, int] = {}
    alive: list[torch.Tensor] = []
    own = {parameter.untyped_storage()._cdata for parameter in component.parameters()}
    own.add(incoming["s"].untyped_storage()._cdata)

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        alive.append(tensor)  # or another tensor might get its identity
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage.nbytes()
        return tensor

    flops = {}
    with torch.device("meta"):
        for name in ("forward_s", "backward_s", "infer_s", "route_s"):
            with (
                FlopCounterMode(display=False) as counter,
                torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
            ):
                run.parts[name]()
            flops[name] = counter.get_total_flops()
    weights = component.weights()
    parameters = [parameter for parameter in component.parameters() if parameter.requires_grad]
    parameter_bytes = sum(value.numel() * value.element_size() for value in weights.values())
    gradient_bytes = sum(parameter.numel() * parameter.element_size() for parameter in parameters)
    optimizer_bytes = sum(
        optimizer.state_bytes_per_parameter() * parameter.numel() * parameter.element_size()
        for optimizer in component.optimizers().values()
        for parameter in optimizer.parameters
    )
    item = network.dtype.itemsize
    label_bytes = 0
    route_width = network.classes if index == 0 else getattr(network.spec.method, "label_dim", network.classes)
    if network.spec.method.kind == "associated_learning":
        label_bytes = batch_size * network.spec.method.label_dim * item
    s_bytes = batch_size * link.output.sample_bytes
    rate = ASSUMED_FLOPS_PER_S * threads
    moved_s = (s_bytes + batch_size * link.input.sample_bytes) / ASSUMED_BYTES_PER_S
    return ComponentCosts(
        name=link.name,
        forward_s=flops["forward_s"] / rate + moved_s,
        backward_s=flops["backward_s"] / rate + 2.0 * moved_s,
        update_s=(parameter_bytes + gradient_bytes + optimizer_bytes) / ASSUMED_BYTES_PER_S,
        infer_s=flops["infer_s"] / rate + moved_s,
        route_s=flops["route_s"] / rate + batch_size * route_width * item / ASSUMED_BYTES_PER_S,
        parameters=sum(parameter.numel() for parameter in parameters),
        parameter_bytes=parameter_bytes,
        gradient_bytes=gradient_bytes,
        optimizer_bytes=optimizer_bytes,
        activation_bytes=sum(kept.values()),
        output_bytes=s_bytes + label_bytes,
        infer_bytes=s_bytes,
        route_bytes=batch_size * route_width * item,
        output_shape=tuple(link.output),
    )
