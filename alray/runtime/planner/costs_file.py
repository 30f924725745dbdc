"""Costs of components from a file: what `alray probe` wrote on some device."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from alray.config.sections.spec import Spec
from alray.core.counting import counted
from alray.core.errors import PlanError
from alray.core.storage.json_file import read_json
from alray.planning.prediction.basis import MEASURED_SPREAD, PREDICTED
from alray.planning.prediction.costs import ComponentCosts, Costs
from alray.planning.prediction.machines import Machines
from alray.planning.prediction.seconds import share_s

_SETTINGS: dict[str, Any] = {
    "method": True,
    "optimizer": True,
    "pipeline": {"messages"},
    "resources": {"tf32"},
    "run": {"deterministic", "precision", "compile"},
}
"""Of a spec, what times depend on and sizes need not."""
_DECIDING = ("method.kind", "optimizer.kind", "optimizer.accumulate", "run.precision", "run.compile")
"""Of these, what no other value stands for."""
_HINT = "give a file of `alray probe SPEC --output costs.json`"
_PER_SAMPLE = ("infer_s", "route_s", "label_s")
"""Times of a component that grow with the samples."""
_PER_UPDATE = ("update_s", "reduce_s")
"""Those that do not depend on them."""
_WITH_FIXED = {"forward_s": "forward_fixed_s", "backward_s": "backward_fixed_s"}
"""Those of which a part does not depend on them. That part may be below 0: see `ComponentCosts`."""


def probed(costs: Costs, spec: Spec) -> Costs:
    """Measured costs of a spec as `alray probe` writes them: they say where they were measured, and with which
    settings."""
    threads = counted(costs.threads, "thread")
    low, high = PREDICTED
    return replace(
        costs,
        source="file",
        origin=f"measured by `alray probe` on {costs.device}, {threads}, on {date.today().isoformat()}",
        spread=MEASURED_SPREAD,
        spread_origin=f"nine in ten predictions from measured components were {low} to {high} of the measured step",
        settings=spec.model_dump(mode="json", include=_SETTINGS),
    )


def read_costs(file: Path, spec: Spec, network: Costs) -> Costs:
    """The costs of a file, for the network of a spec. Their origin names other settings that they were measured with.

    Raises PlanError where it has another number of components, or is of another network, precision, optimizer or number
    of mini-batches that share an update; CheckpointError where it cannot be read or has an impossible figure.

    Args:
        network: the counted costs of that network: its sizes, and the samples of a mini-batch.
    """
    costs = read_json(file, Costs, _HINT)
    if len(costs.components) != len(network.components):
        raise PlanError(
            f"`{file.name}` has {counted(len(costs.components), 'component')}, the model has {len(network.components)}",
            key="pipeline.costs",
            hint="measure this network",
        )
    low, high = costs.spread
    if low > high:
        raise PlanError(
            f"`spread` is from the least to the most, and here it is {costs.spread}", file=str(file), hint=_HINT
        )
    others = list(_other_settings(costs.settings, spec.model_dump(mode="json", include=_SETTINGS)))
    deciding = (f"{key}: {there} there and {here} here" for key, there, here in others if key in _DECIDING)
    for fault in (*deciding, *_other_sizes(costs, network)):
        raise PlanError(
            f"`{file.name}` is of another {fault}", key="pipeline.costs", hint="measure this spec with `alray probe`"
        )
    told = (f", with {key} {json.dumps(there)} (here {json.dumps(here)})" for key, there, here in others)
    origin = costs.origin + "".join(told)
    if network.batch_size != costs.batch_size:
        origin += f", with {costs.batch_size} samples, and taken in proportion"
    return in_proportion(replace(costs, origin=origin, settings={}), network)


def in_proportion(costs: Costs, network: Costs) -> Costs:
    """The costs of the same network for mini-batches of another size.

    Args:
        network: its counted costs, with the samples of such a mini-batch.
    """
    share = network.batch_size / costs.batch_size
    return replace(
        costs,
        components=tuple(
            replace(own, **_times(read, share)) for read, own in zip(costs.components, network.components, strict=True)
        ),
        data_s=share * costs.data_s,
        batch_size=network.batch_size,
        batch_bytes=network.batch_bytes,
        copy_bytes=network.copy_bytes,
        copy_every=network.copy_every,
    )


def _other_sizes(costs: Costs, network: Costs) -> Iterator[str]:
    """Words on components that are not those of the network."""
    for index, (read, own) in enumerate(zip(costs.components, network.components, strict=True)):
        for what, there, here in (
            ("parameters", read.parameters, own.parameters),
            ("numbers a sample as output", read.output_shape, own.output_shape),
            ("bytes a sample as output", _sample_bytes(read, costs), _sample_bytes(own, network)),
        ):
            if there != here:
                yield f"network: component {index} has {_numbers(there)} {what} there and {_numbers(here)} here"


def _other_settings(there: Any, here: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The settings that costs were measured with and the spec does not have: their keys, and both values. Two rates
    take the same time."""
    if isinstance(there, dict) and isinstance(here, dict):
        for name in (each for each in there if each in here):
            yield from _other_settings(there[name], here[name], f"{key}.{name}" if key else name)
    elif there != here and not (isinstance(there, float) and isinstance(here, float) and there and here):
        yield key, there, here


def _sample_bytes(component: ComponentCosts, costs: Costs) -> int:
    whole = component.output_bytes if component.uncompressed_bytes is None else component.uncompressed_bytes
    return whole // costs.batch_size


def _numbers(value: int | tuple[int, ...]) -> str:
    return " x ".join(f"{each:,}" for each in (value if isinstance(value, tuple) else (value,)))


def on_their_devices(costs: Costs, machines: Machines | None) -> Costs:
    """The costs without a sender's time per message, if the first planned device is an accelerator: it sends from its
    own memory."""
    if machines is None or not machines.kinds[0].accelerator:
        return costs
    return replace(costs, edge_latency_s=0.0, edge_s_per_byte=0.0)


def _times(read: ComponentCosts, share: float) -> dict[str, Any]:
    """The times of a component for `share` times the samples."""
    kept = {name: getattr(read, name) for name in (*_PER_UPDATE, *_WITH_FIXED.values())}
    scaled = {name: getattr(read, name) * share for name in _PER_SAMPLE}
    return kept | scaled | {name: share_s(getattr(read, name), kept[own], share) for name, own in _WITH_FIXED.items()}
