"""streamed: no barrier. The pipeline fills once per run; then every stage is always busy.

Two mini-batches on three stages with F = L = B = U = 1 s and messages that take no time:

    stage 0   FLBUFLBU..
    stage 1   .FLBUFLBU.
    stage 2   ..FLBUFLBU

Samples go up first, so the next stage can begin; labels follow once the label chain has computed them.

With virtual stages a mini-batch comes back to a stage after a round of forwards. Where the rest of a stage's work is
shorter than the forwards of the other stages, the stage waits for it.
"""

from __future__ import annotations

from alray.planning.schedules.local import in_order
from alray.planning.schedules.schedule import Schedule

SCHEDULE = Schedule(
    name="streamed",
    methods="local losses",
    actions=in_order("R F S R.1 L S.1 B U"),
    default_on=("one stage", "several stages"),
    fewest_virtual_stages=1,
)
