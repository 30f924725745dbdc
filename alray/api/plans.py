"""`alray.plan` and `alray.ways`: how a spec would run, without running it."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alray.api.calls import Overrides, checked, watched
from alray.api.objects import taken
from alray.config.loading.load import SpecSource, read_spec
from alray.config.loading.overrides import apply_overrides, override_text
from alray.planning.prediction.costs import Costs
from alray.planning.prediction.plan import Plan

if TYPE_CHECKING:
    from alray.runtime.planner.fitting import Fitting


_LINKS = ("link", "within", "line")


def with_machines(
    spec: SpecSource,
    overrides: Sequence[str],
    *,
    on: str | None,
    link: str | None,
    within: str | None,
    costs: str | PathLike[str] | None = None,
) -> list[str]:
    """Overrides together with those that these options of a plan stand for: keys of `machines`, and `pipeline.costs`.

    The links of a spec are those of its own nodes, so with `on` they do not count.
    """
    machines: dict[str, str | None] = {}
    if on is not None:
        given = {text.partition("=")[0].strip() for text in overrides}
        of_spec = [] if "machines" in given else [key for key in _LINKS if f"machines.{key}" not in given]
        machines = {"nodes": on} | dict.fromkeys(of_spec)
    machines |= {key: text for key, text in {"link": link, "within": within}.items() if text is not None}
    texts = [*overrides, *(override_text(f"machines.{key}", text) for key, text in machines.items())]
    return texts if costs is None else [*texts, override_text("pipeline.costs", str(Path(costs).absolute()))]


def machines_of(spec: SpecSource, overrides: Sequence[str]) -> Any:
    """The section `machines` as it is written; None if there is none."""
    read = read_spec(spec).copy()
    apply_overrides(read.value, overrides, read.locations)
    return read.value.get("machines")


@checked
def plan(
    spec: SpecSource,
    overrides: Overrides = None,
    *,
    model: Any = None,
    data: Any = None,
    on: str | None = None,
    link: str | None = None,
    within: str | None = None,
    costs: str | PathLike[str] | None = None,
    probe: bool = False,
    allow_code: bool = False,
    progress: bool = True,
) -> Plan:
    """The plan of a spec, as `alray plan` makes it: what would run where, how long, and with how much memory.

    Args:
        spec, overrides, model, data, allow_code, progress: as for `alray.run`.
        on: machines that are not here, such as "8xA100", or "2x8xA100" for two nodes of eight, without the links that
            the spec says of its own; None: those of the spec, or this machine.
        link: the network card of each of these nodes, or with one node what connects its devices: "25GB/s", or
            "100Mbit/s, 20ms".
        within: what connects two devices of a node; None: as published of the device.
        costs: a file with the costs of the components, of `alray probe`, or a public chain.
        probe: measure the components on this machine instead of estimating their costs.
    """
    from alray.orchestrate import plan_spec
    from alray.runtime.options import Options

    found = taken(spec, overrides, model=model, data=data)
    given = with_machines(found.spec, found.overrides, on=on, link=link, within=within, costs=costs)
    options = Options(allow_code=allow_code, objects=found.objects)
    with watched(progress) as (display, _):
        _, planned = plan_spec(found.spec, given, probe=probe, options=options, observer=display)
        return planned


@checked
def probe(
    spec: SpecSource,
    overrides: Overrides = None,
    *,
    model: Any = None,
    data: Any = None,
    output: str | PathLike[str] | None = None,
    allow_code: bool = False,
    progress: bool = True,
) -> Costs:
    """The costs of a spec's components, measured on this machine as `alray probe` does, for plans elsewhere.

    Args:
        output: the file that they are also written to, which `costs` of `alray.plan` reads.
        spec, overrides, model, data, allow_code, progress: as for `alray.run`.
    """
    from alray.core.run_folder.records import write_json
    from alray.orchestrate import probe_spec
    from alray.runtime.options import Options

    found = taken(spec, overrides, model=model, data=data)
    options = Options(allow_code=allow_code, objects=found.objects)
    with watched(progress) as (display, _):
        _, costs = probe_spec(found.spec, found.overrides, options=options, observer=display)
    if output is not None:
        write_json(Path(output), costs.as_json())
    return costs


@checked
def ways(
    spec: SpecSource,
    overrides: Overrides = None,
    *,
    model: Any = None,
    data: Any = None,
    on: str | None = None,
    link: str | None = None,
    within: str | None = None,
    costs: str | PathLike[str] | None = None,
    devices: str | None = None,
    probe: bool = False,
    allow_code: bool = False,
    progress: bool = True,
) -> Fitting:
    """The ways to train a network here, or on some devices, as `alray plan --compare` searches them: `rows`, what fits
    first, and the `best` of them.

    Args:
        on, link, within, costs, probe: as for `alray.plan`.
        devices: in place of `on`, the memory of devices, as "4x24GB", which are as fast as this machine.
        model, data, allow_code, progress: as for `alray.run`.
    """
    from alray.runtime.options import Options
    from alray.runtime.planner.fitting import fit_spec

    found = taken(spec, overrides, model=model, data=data)
    given = with_machines(found.spec, found.overrides, on=on, link=link, within=within, costs=costs)
    options = Options(allow_code=allow_code, objects=found.objects)
    with watched(progress) as (display, _):
        return fit_spec(found.spec, given, devices, probe=probe, options=options, teller=display)
