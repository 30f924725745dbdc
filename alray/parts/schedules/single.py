"""single: backpropagation on one stage, without a pipeline.

Two mini-batches with F = U = 1 s and B = 2 s:

    stage 0   FBBUFBBU
"""

from __future__ import annotations

from alray.planning.schedules.local import in_order
from alray.planning.schedules.schedule import Schedule

SCHEDULE = Schedule(
    name="single",
    methods="backpropagation",
    actions=in_order("F B U"),
    default_on=("one stage",),
    one_stage=True,
)
