"""parallel_backward: all forwards and losses, a barrier, all backwards at once, a barrier.

Two mini-batches on three stages with F = L = B = U = 1 s and messages that take no time:

    stage 0   FL..BUFL..BU
    stage 1   .FL.BU.FL.BU
    stage 2   ..FLBU..FLBU

Published as the `ALM` mode of Associated Learning.
"""

from __future__ import annotations

from alray.planning.schedules.local import in_order
from alray.planning.schedules.schedule import Schedule

SCHEDULE = Schedule(
    name="parallel_backward",
    methods="local losses",
    actions=in_order("R F S R.1 L S.1 W B U W.1"),
    fewest_virtual_stages=1,
)
