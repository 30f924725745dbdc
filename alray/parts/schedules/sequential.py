"""sequential: one stage after another. A stage sends when its update is done; one barrier per mini-batch.

Two mini-batches on three stages with F = L = B = U = 1 s and messages that take no time:

    stage 0   FLBU........FLBU........
    stage 1   ....FLBU........FLBU....
    stage 2   ........FLBU........FLBU

The reference that all other schedules of local losses are compared with, and the published `AL` mode.
"""

from __future__ import annotations

from alray.planning.schedules.local import in_order
from alray.planning.schedules.schedule import Schedule

SCHEDULE = Schedule(
    name="sequential",
    methods="local losses",
    actions=in_order("R F R.1 L B U S S.1 W"),
    fewest_virtual_stages=1,
)
