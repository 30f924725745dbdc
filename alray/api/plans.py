"""`alray.plan` and `alray.search_layouts`: how a spec would run, without running it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from alray.api.arguments import checked
from alray.api.calls import Overrides, override_texts, watched
from alray.api.objects import taken
from alray.config.loading.load import SpecSource
from alray.planning.prediction.plan import Plan

if TYPE_CHECKING:
    from alray.runtime.planner.fitting import Fitting


@checked
def plan(
    spec: SpecSource,
    overrides: Overrides = None,
    *,
    model: Any = None,
    data: Any = None,
    probe: bool = False,
    allow_code: bool = False,
    progress: bool = True,
) -> Plan:
    """The plan of a spec, as `alray plan` makes it: what would run where, how long, and with how much memory.

    Args:
        spec, overrides, model, data, allow_code, progress: as for `alray.run`.
        probe: measure the components on this machine instead of estimating their costs.
    """
    from alray.orchestrate import plan_spec
    from alray.runtime.options import Options

    found = taken(spec, overrides, model=model, data=data)
    options = Options(allow_code=allow_code, objects=found.objects)
    with watched(progress) as (display, _):
        _, planned = plan_spec(found.spec, found.overrides, probe=probe, options=options, observer=display)
        return planned


@checked
def search_layouts(
    spec: SpecSource,
    overrides: Overrides = None,
    *,
    devices: str | Sequence[int],
    probe: bool = False,
    allow_code: bool = False,
    progress: bool = True,
) -> Fitting:
    """How a network fits on some devices, as `alray fit` searches it: `rows`, what fits first, and the `best` of them.

    Args:
        devices: their memory, as "4x24GB" or in bytes.
        probe: as for `alray.plan`; the others as for `alray.run`.
    """
    from alray.runtime.planner.fitting import fit_spec, parse_devices

    given = override_texts(overrides)
    with watched(progress) as (display, _):
        sizes = parse_devices(devices) if isinstance(devices, str) else devices
        return fit_spec(spec, given, sizes, probe=probe, allow_code=allow_code, teller=display)
