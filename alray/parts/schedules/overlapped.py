"""overlapped: each stage continues to L and B as soon as its forward ends; one barrier per mini-batch.

Two mini-batches on three stages with F = L = B = U = 1 s and messages that take no time:

    stage 0   FLBU..FLBU..
    stage 1   .FLBU..FLBU.
    stage 2   ..FLBU..FLBU

Published as the `ALP` mode of Associated Learning, also called `AL-FM`.
"""

from __future__ import annotations

from alray.planning.schedules.local import in_order
from alray.planning.schedules.schedule import Schedule

SCHEDULE = Schedule(
    name="overlapped",
    methods="local losses",
    actions=in_order("R F S R.1 L S.1 B U W"),
    fewest_virtual_stages=1,
)
