"""overlapped: each stage continues to L and B as soon as its forward ends; one barrier per mini-batch.

Two mini-batches on three stages with F = L = B = U = 1 s and messages that take no time:

    stage 0   FLBU..FLBU..
    stage 1   .FLBU..FLBU.
    stage 2   ..FLBU..FLBU

Published as the `ALP` mode of Associated Learning, also called `AL-FM`.
"""

from __future__ import annotations

from typing import Any

from alray.planning.schedules.durations import Durations
from alray.planning.schedules.local import in_order, latest_s
from alray.planning.schedules.schedule import LocalWork, Schedule


def bound(durations: Durations, stages: int, micro_batches: int) -> float:
    """The longest way through the forwards up to a stage, and through the rest of that stage."""
    return latest_s(durations, durations.after_forward_s, stages)


def least(below: LocalWork, own: LocalWork, whole: LocalWork) -> Any:
    """The forwards up to this stage, and the rest of it."""
    return below.forward + own.forward + own.label + own.backward + own.update


SCHEDULE = Schedule(
    name="overlapped",
    methods="local losses",
    actions=in_order("R F S R.1 L S.1 B U W"),
    bound=bound,
    least=least,
    limited_by="forwards follow each other ({forwards}), then {slowest_backward}",
    fewest_virtual_stages=1,
)
