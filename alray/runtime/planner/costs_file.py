"""Costs of components from a file: what `alray probe` wrote on some device, or a public chain of another network."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from alray.config.loading.yaml_text import read_yaml
from alray.config.sections.spec import Spec
from alray.core.counting import counted
from alray.core.errors import PlanError
from alray.core.storage.json_file import first_fault, read_json
from alray.core.storage.location import require_file
from alray.planning.prediction.basis import MEASURED_SPREAD, PREDICTED
from alray.planning.prediction.costs import ComponentCosts, Costs, Size, Time
from alray.planning.prediction.machines import DEVICES, Machines
from alray.planning.prediction.seconds import share_s

_SETTINGS: dict[str, Any] = {
    "method": True,
    "optimizer": True,
    "pipeline": {"messages"},
    "resources": {"tf32"},
    "run": {"deterministic"},
}
"""Of a spec, what times depend on and sizes need not."""
_HINT = "give a file of `alray probe SPEC --output costs.json`, or a chain such as those of docs/published_runs/chains"
PUBLISHED = 0.125
"""How far nine in ten predictions of published pipelines were off at most. A test ties it to docs/predictions.md."""
_WITH_FIXED = {"forward_s": "forward_fixed_s", "backward_s": "backward_fixed_s"}
"""Times of which a part does not depend on the samples. That part may be below 0: see `ComponentCosts`."""


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


def read_costs(file: Path, spec: Spec, network: Costs, machines: Machines | None) -> Costs:
    """The costs of a file, for the network of a spec. Their origin names other settings that they were measured with.

    Raises PlanError where it has another number of components, or is of another network, precision, optimizer or number
    of mini-batches that share an update; CheckpointError where it cannot be read or has an impossible figure; SpecError
    where it is not YAML, with the line.

    Args:
        network: the counted costs of that network: its sizes, and the samples of a mini-batch.
        machines: that the plan is for; None: this one.
    """
    costs = _read_chain(file, network) if file.suffix in (".yaml", ".yml") else read_json(file, Costs, _HINT)
    if len(costs.components) != len(network.components):
        what = "a chain stands for a network of as many components" if costs.chain else "measure this network"
        raise PlanError(
            f"`{file.name}` has {counted(len(costs.components), 'component')}, the model has {len(network.components)}",
            key="pipeline.costs",
            hint=what,
        )
    low, high = costs.spread
    if low > high:
        raise PlanError(
            f"`spread` is from the least to the most, and here it is {costs.spread}", file=str(file), hint=_HINT
        )
    others = "".join(_other_settings(costs.settings, spec.model_dump(mode="json", include=_SETTINGS)))
    costs = replace(costs, origin=costs.origin + _stands_for(costs, machines) + others, settings={})
    for fault in () if costs.chain else _differences(costs, network):
        raise PlanError(
            f"`{file.name}` is of another {fault}", key="pipeline.costs", hint="measure this spec with `alray probe`"
        )
    if network.batch_size != costs.batch_size:
        origin = f"{costs.origin}, with {costs.batch_size} samples, and taken in proportion"
        costs = replace(costs, origin=origin)
    return in_proportion(costs, network)


def in_proportion(costs: Costs, network: Costs) -> Costs:
    """The costs of the same network for mini-batches of another size. Those of a chain stay, whose mini-batches are as
    large as it says.

    Args:
        network: its counted costs, with the samples of such a mini-batch.
    """
    if costs.chain:
        return replace(costs, batch_size=network.batch_size)
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


def _differences(costs: Costs, network: Costs) -> Iterator[str]:
    """Words on what was measured and is not what the spec has."""
    for name, key in (
        ("precision", "precision"),
        ("optimizer", "optimizer"),
        ("accumulate", "optimizer.accumulate"),
        ("method", "method"),
        ("compiled", "run.compile"),
    ):
        there, here = getattr(costs, name), getattr(network, name)
        if there != here:
            yield f"{key}: {there} there and {here} here"
    for index, (read, own) in enumerate(zip(costs.components, network.components, strict=True)):
        for what, there, here in (
            ("parameters", read.parameters, own.parameters),
            ("numbers a sample as output", read.output_shape, own.output_shape),
            ("bytes a sample as output", read.whole_bytes // costs.batch_size, own.whole_bytes // network.batch_size),
        ):
            if there != here:
                yield f"network: component {index} has {_numbers(there)} {what} there and {_numbers(here)} here"


def _other_settings(there: Any, here: Any, key: str = "") -> Iterator[str]:
    """Words on the settings that costs were measured with and the spec does not have. Two rates take the same time."""
    if isinstance(there, dict) and isinstance(here, dict):
        for name in (each for each in there if each in here):
            yield from _other_settings(there[name], here[name], f"{key}.{name}" if key else name)
    elif there != here and not (isinstance(there, float) and isinstance(here, float) and there and here):
        yield f", with {key} {json.dumps(there)} (here {json.dumps(here)})"


def _numbers(value: int | tuple[int, ...]) -> str:
    return " x ".join(f"{each:,}" for each in (value if isinstance(value, tuple) else (value,)))


def _stands_for(costs: Costs, machines: Machines | None) -> str:
    """Words for `Costs.origin` if the costs are of another device than the first planned one; otherwise none."""
    if machines is None:
        return ""
    device = machines.kinds[0]
    words = set(re.findall(r"\w+", re.sub(r"rtx ", "rtx", costs.device.lower())))
    named = [name for name in {**DEVICES, device.name: device} if words >= set(name.lower().split("-"))]
    return (
        f", which stands for {device.name} here"
        if device.peaks and max(named, key=len, default="") != device.name
        else ""
    )


def _times(read: ComponentCosts, share: float) -> dict[str, Any]:
    """The times of a component for `share` times the samples."""
    kept = {name: getattr(read, name) for name in ("update_s", "reduce_s", *_WITH_FIXED.values())}
    scaled = {name: getattr(read, name) * share for name in ("infer_s", "route_s", "label_s")}
    return kept | scaled | {name: share_s(getattr(read, name), kept[own], share) for name, own in _WITH_FIXED.items()}


class _Chain(BaseModel):
    model_config = ConfigDict(extra="ignore")

    source: str
    note: str = ""
    columns: list[str]
    components: list[list[Any]]


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore")

    name: str
    forward_s: Time
    backward_s: Time
    output_bytes: Size
    parameter_bytes: Size


def _read_chain(file: Path, network: Costs) -> Costs:
    """A published chain as costs of this network. It has only times, weights and outputs; the rest is assumed:
    gradients as large as weights, activations as large as outputs, no updates.

    Args:
        network: the counted costs. How much its optimizer and averages keep for a byte of gradients counts here too.
    """
    require_file(file)
    try:
        document, _ = read_yaml(file.read_text(encoding="utf-8"), str(file))
        chain = _Chain.model_validate(document)
        rows = [_Row.model_validate(dict(zip(chain.columns, row, strict=True))) for row in chain.components]
    except (OSError, ValueError) as error:
        what = first_fault(error) if isinstance(error, ValidationError) else error
        raise PlanError(f"this is no chain: {what}", file=str(file), hint=_HINT) from error
    gradients = sum(each.gradient_bytes for each in network.components)
    kept = {
        name: sum(getattr(each, name) for each in network.components) / gradients if gradients else 0.0
        for name in ("optimizer_bytes", "average_bytes", "average_state_bytes")
    }

    def component(row: _Row) -> ComponentCosts:
        lasting: dict[str, Any] = {name: round(share * row.parameter_bytes) for name, share in kept.items()}
        return ComponentCosts(
            **row.model_dump(),
            **lasting,
            update_s=0.0,
            infer_s=row.forward_s,
            route_s=0.0,
            parameters=row.parameter_bytes // 4,
            gradient_bytes=row.parameter_bytes,
            activation_bytes=row.output_bytes,
            infer_bytes=row.output_bytes,
            route_bytes=0,
            output_shape=(),
        )

    return Costs(
        source="file",
        device=chain.note or chain.source,
        threads=1,
        batch_size=network.batch_size,
        components=tuple(map(component, rows)),
        action_overhead_s=0.0,
        origin=f"profiled by others ({chain.source}; {chain.note}) in place of the network's own, without updates; "
        "a mini-batch is as large as theirs",
        spread=(1 / (1 + PUBLISHED), 1 / (1 - PUBLISHED)),
        spread_origin=f"nine in ten published pipelines were predicted within {PUBLISHED:.1%} (docs/predictions.md)",
        chain=True,
    )
