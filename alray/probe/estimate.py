"""What each component costs: sizes counted on the meta device, times estimated from the count or given in the spec."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from alray.device import devices
from alray.nn.network import Network
from alray.plan.costs import ComponentCosts, Costs
from alray.probe.exercise import Exercise
from alray.probe.memory import component_memory

ASSUMED_FLOPS_PER_S = 4.0e10
"""Of one thread; only estimates use it, and an estimate is for shares between components, not for times."""
ASSUMED_BYTES_PER_S = 1.0e10


def estimate_costs(network: Network, *, batch_size: int, device: torch.device, threads: int) -> Costs:
    """Costs counted on the meta device: nothing is allocated, nothing is run. The global stream stays as it was."""
    counted: dict[str, ComponentCosts] = {}
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        for index in range(len(network)):
            if network.alike(index) not in counted:
                counted[network.alike(index)] = _count(network, index, batch_size, device, threads)
    labels = torch.empty(batch_size, dtype=torch.int64, device="meta")
    read = [*network.incoming(0, batch_size, "meta").values(), labels]
    return Costs(
        source="estimated",
        device=devices.device_name(device),
        threads=threads,
        batch_size=batch_size,
        components=tuple(counted[network.alike(index)] for index in range(len(network))),
        batch_bytes=sum(tensor.nbytes for tensor in read),
    )


def given_costs(estimated: Costs, given: Any) -> Costs:
    """Sizes as counted, times of training as the spec gives them."""
    components = tuple(
        replace(
            component,
            forward_s=entry.forward_s,
            backward_s=entry.backward_s,
            update_s=entry.update_s,
            label_s=0.0,  # given costs do not tell L and B apart
        )
        for component, entry in zip(estimated.components, given, strict=True)
    )
    return replace(estimated, source="given", components=components)


def _count(network: Network, index: int, batch_size: int, device: torch.device, threads: int) -> ComponentCosts:
    """Sizes of one component, and times as the work it does over an assumed rate."""
    component = network.component(index, "meta")
    link = network.encoders[index]
    incoming = network.incoming(index, batch_size, "meta")
    with torch.device("meta"):
        if network.spec.method.kind == "associated_learning" and index > 0:
            incoming["t"] = torch.empty(batch_size, network.spec.method.label_dim, dtype=network.dtype)
        incoming["labels"] = torch.zeros(batch_size, dtype=torch.int64)
    run = Exercise(component, incoming)
    flops = {}
    with torch.device("meta"):
        for name in ("forward_s", "backward_s", "infer_s", "route_s"):
            with FlopCounterMode(display=False) as counter:
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
    elif network.spec.method.kind == "supervised_contrastive":
        label_bytes = batch_size * torch.int64.itemsize  # the labels
    s_bytes = batch_size * sum(link.given_bytes.values())
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
        output_bytes=s_bytes + label_bytes,
        infer_bytes=s_bytes,
        route_bytes=batch_size * route_width * item,
        output_shape=tuple(link.output),
        ends_route=network.ends_route(index),
        parts=component.part_parameters(),
        **asdict(component_memory(network, index, batch_size, device)),
    )
