"""zero_bubble: backwards are split into I and G, and G fills time that would be idle.

Four micro-batches on three stages with F = I = G = 1 s; updates and messages take no time:

    stage 0   FFF..IGFIGIGIG
    stage 1   .FF.IFIGFIGIGG
    stage 2   ..FIFIFIGFIGGG

The stage below waits for I alone. This is ZB1P, which runs on any number of stages with any number of virtual stages
(torch's ScheduleZBVZeroBubble has exactly two, in the shape of a V). Qi et al., "Zero Bubble Pipeline Parallelism",
ICLR 2024. The order is that of `interleaved_1f1b.py`, with split backwards. On one stage backwards are not split.
G has the gradients of linear and convolutional layers, and I all others (`models/split_backward.py`).
"""

from __future__ import annotations

from alray.parts.schedules.interleaved_1f1b import interleaved
from alray.planning.schedules.micro_batches import whole_rounds
from alray.planning.schedules.pipeline import with_messages
from alray.planning.schedules.schedule import Schedule

SCHEDULE = Schedule(
    name="zero_bubble",
    methods="backpropagation",
    actions=with_messages(interleaved(split_backward=True)),
    demand=whole_rounds("zero_bubble"),
    fewest_virtual_stages=1,
)
