"""single: backpropagation on one stage, without a pipeline.

Two mini-batches with F = U = 1 s and B = 2 s:

    stage 0   FBBUFBBU
"""

from __future__ import annotations

from alray.planning.schedules.durations import Durations
from alray.planning.schedules.local import in_order
from alray.planning.schedules.schedule import Schedule


def bound(durations: Durations, stages: int, micro_batches: int) -> float:
    """The work of the stage."""
    return sum(f + b for f, b in zip(durations.forward_s, durations.after_forward_s, strict=True))


SCHEDULE = Schedule(
    name="single",
    methods="backpropagation",
    actions=in_order("F B U"),
    bound=bound,
    formula="F+B",
    limited_by="one stage does all the work",
    default_on=("one stage",),
    one_stage=True,
)
