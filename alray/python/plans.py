"""`alray.plan`: a plan without a run."""

from __future__ import annotations

from alray.plan.plan import Plan
from alray.python.asking import Overrides, asked, override_texts, watched
from alray.spec.loading import Source


def plan(
    spec: Source,
    overrides: Overrides = None,
    *,
    probe: bool = False,
    allow_code: bool = False,
    progress: bool = True,
) -> Plan:
    """The plan of a spec, as `alray plan` makes it: what would run where, how long, and with how much memory.

    spec, overrides, allow_code, progress: as for `alray.run`. probe: measure the components on this machine instead of
    estimating their costs.
    """
    from alray.orchestrate import plan_spec

    given = override_texts(overrides)
    with asked(spec, given), watched(progress) as (display, _):
        _, planned = plan_spec(spec, given, probe=probe, allow_code=allow_code, observer=display)
        return planned
