"""naive: model parallelism with whole mini-batches. One stage works at a time.

One mini-batch on three stages with F = 1 s and B = 2 s; updates and messages take no time:

    stage 0   F......BB
    stage 1   .F...BB..
    stage 2   ..FBB....

It is gpipe with one micro-batch, and torch runs it as that.
"""

from __future__ import annotations

from alray.parts.schedules import gpipe
from alray.planning.schedules.pipeline import with_messages
from alray.planning.schedules.schedule import Schedule

SCHEDULE = Schedule(
    name="naive",
    methods="backpropagation",
    actions=with_messages(gpipe.order),
)
