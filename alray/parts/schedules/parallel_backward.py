"""parallel_backward: all forwards and losses, a barrier, all backwards at once, a barrier.

Two mini-batches on three stages with F = L = B = U = 1 s and messages that take no time:

    stage 0   FL..BUFL..BU
    stage 1   .FL.BU.FL.BU
    stage 2   ..FLBU..FLBU

Published as the `ALM` mode of Associated Learning.
"""

from __future__ import annotations

from typing import Any

from alray.planning.schedules.durations import Durations
from alray.planning.schedules.local import in_order, latest_s
from alray.planning.schedules.placement import of_stages
from alray.planning.schedules.schedule import LocalWork, Schedule


def bound(durations: Durations, stages: int, micro_batches: int) -> float:
    """The latest stage to reach the first barrier, then the slowest backward with its update."""
    first_barrier = latest_s(durations, durations.labels_s, stages)
    return first_barrier + max(of_stages(durations.after_labels_s, stages))


def least(below: LocalWork, own: LocalWork, whole: LocalWork) -> Any:
    """All forwards, then the backward of this stage."""
    return whole.forward + own.backward + own.update


SCHEDULE = Schedule(
    name="parallel_backward",
    methods="local losses",
    actions=in_order("R F S R.1 L S.1 W B U W.1"),
    bound=bound,
    least=least,
    limited_by="forwards follow each other ({forwards}), then {slowest_backward}",
    fewest_virtual_stages=1,
)
