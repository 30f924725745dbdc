"""The costs of each component: sizes counted on the meta device, and times estimated from the counts or given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache

import torch

from alray.config.sections.pipeline import Cost
from alray.core.accelerator import kind
from alray.core.errors import UserCodeError
from alray.core.randomness.generators import put_back
from alray.models.component import trainable
from alray.models.network import Network
from alray.models.shape import Shape
from alray.planning.prediction.costs import ComponentCosts, Costs
from alray.runtime.device import devices
from alray.runtime.probe.memory import component_memory

ASSUMED_FLOPS_PER_S = 4.0e10
"""The speed of one thread. Only estimates use it: they give the shares of the components, not absolute times."""
ASSUMED_BYTES_PER_S = 1.0e10


@lru_cache(maxsize=1)  # whoever asks for a plan asks more than once, and to count takes long
def estimate_costs(network: Network, *, batch_size: int, device: torch.device, threads: int) -> Costs:
    """Costs counted on the meta device, without allocating or computing. Global generators stay as they were."""
    counted: dict[str, ComponentCosts] = {}
    with put_back(device):
        for index in range(len(network)):
            if network.alike(index) not in counted:
                try:
                    counted[network.alike(index)] = _count(network, index, batch_size, device, threads)
                except UserCodeError as error:
                    hint = (
                        "it was tried on torch's meta device, where sizes are counted; all passes must also run there"
                    )
                    raise error.with_hint(hint) from error
    labels = network.method.given_labels["labels"].empty(batch_size, "meta")
    read = [*network.incoming(0, batch_size, "meta").values(), labels]
    return Costs(
        source="estimated",
        device=devices.device_name(device),
        threads=threads,
        batch_size=batch_size,
        components=tuple(counted[network.alike(index)] for index in range(len(network))),
        batch_bytes=sum(tensor.nbytes for tensor in read),
        copy_bytes=_copy_bytes(network),
    )


def _copy_bytes(network: Network) -> int:
    if network.method.copy_every is None:
        return 0
    return sum(shape.sample_bytes for shape in network.method.copied(network.encoders).values())


def _floats(edge: Mapping[str, Shape]) -> int:
    """Bytes of one sample in a message of gradients, which a mask has none of."""
    return sum(shape.sample_bytes for name, shape in edge.items() if name != "mask")


def given_costs(estimated: Costs, given: Sequence[Cost]) -> Costs:
    """Counted sizes, with the training times of the spec, which gives L and B together: `label_s` is 0."""
    components = tuple(
        replace(
            component,
            forward_s=entry.forward_s,
            backward_s=entry.backward_s,
            update_s=entry.update_s,
            label_s=0.0,
        )
        for component, entry in zip(estimated.components, given, strict=True)
    )
    return replace(estimated, source="given", components=components)


def _count(network: Network, index: int, batch_size: int, device: torch.device, threads: int) -> ComponentCosts:
    """Sizes of one component, and times as its work over an assumed rate."""
    from torch.utils.flop_counter import FlopCounterMode  # with it comes Triton

    component = network.component(index, "meta")
    facts = network.encoders[index]
    exercise = component.exercise(
        network.training_input(index, batch_size, "meta"),
        network.route_shape(index + 1).empty(batch_size, "meta"),
        network.other_in_inference(index, batch_size, "meta"),
    )
    flops = {}
    with torch.device("meta"):
        for name, part in exercise.parts.items():
            if name == "update_s":
                continue  # its time follows from bytes; optimizers that read a number of theirs cannot run here
            with FlopCounterMode(display=False) as counter:
                part()
            flops[name] = counter.get_total_flops()
    weights = component.weights()
    parameters = [parameter for parameter in component.parameters() if parameter.requires_grad]
    parameter_bytes = sum(value.numel() * value.element_size() for value in weights.values())
    gradient_bytes = sum(parameter.numel() * parameter.element_size() for parameter in parameters)
    optimizer_bytes = sum(optimizer.state_bytes() for optimizer in component.optimizers().values())
    optimizer_bytes += 0 if component.weight_average is None else component.weight_average.state_bytes()
    s_bytes = batch_size * sum(shape.sample_bytes for shape in network.method.goes_up(facts).values())
    label_bytes = batch_size * sum(shape.sample_bytes for shape in network.method.labels_out(index).values())
    edge, boundary = network.edge(index), network.boundary(index)
    turn, adds_up = trainable(component.turn), component.adds_up
    output_bytes = batch_size * sum(shape.sample_bytes for shape in edge.values())
    route_bytes = batch_size * network.comes_down(index).sample_bytes
    trains_on = torch.device(kind(network.spec.resources.resolved_device))
    rate = ASSUMED_FLOPS_PER_S * threads
    moved_s = (s_bytes + batch_size * facts.input.sample_bytes) / ASSUMED_BYTES_PER_S
    return ComponentCosts(
        name=facts.name,
        forward_s=flops["forward_s"] / rate + moved_s,
        backward_s=(flops["label_s"] + flops["backward_s"]) / rate + 2.0 * moved_s,
        label_s=flops["label_s"] / rate,
        update_s=(parameter_bytes + gradient_bytes + optimizer_bytes) / ASSUMED_BYTES_PER_S,
        infer_s=flops["infer_s"] / rate + moved_s,
        route_s=flops["route_s"] / rate + route_bytes / ASSUMED_BYTES_PER_S,
        parameters=sum(parameter.numel() for parameter in parameters),
        parameter_bytes=parameter_bytes,
        gradient_bytes=gradient_bytes,
        optimizer_bytes=optimizer_bytes,
        output_bytes=output_bytes,
        label_bytes=label_bytes,
        compressed_gradient_bytes=None if boundary is None else batch_size * _floats(network.gradient_edge(index)),
        uncompressed_bytes=None if boundary is None else s_bytes + label_bytes,
        mask_bytes=batch_size * edge["mask"].sample_bytes if "mask" in edge else 0,
        infer_bytes=batch_size * sum(shape.sample_bytes for shape in network.inference_edge(index).values()),
        route_bytes=route_bytes,
        output_shape=tuple(facts.output),
        ends_route=network.ends_route(index),
        parts=component.part_parameters(),
        along_parameters=sum(map(trainable, (component.f, component.passage, component.decoder)))
        + (turn if adds_up else 0),
        turn_parameters=0 if adds_up else turn,
        **asdict(component_memory(network, index, batch_size, trains_on)),
    )
