"""gpipe: all forwards, then all backwards, of several micro-batches.

Four micro-batches on three stages with F = 1 s and B = 2 s; updates and messages take no time:

    stage 0   FFFF......BBBBBBBB
    stage 1   .FFFF...BBBBBBBB..
    stage 2   ..FFFFBBBBBBBB....

Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", NeurIPS 2019.
"""

from __future__ import annotations

from alray.planning.schedules.micro_batches import any_number
from alray.planning.schedules.pipeline import with_messages
from alray.planning.schedules.schedule import Computation, Schedule


def order(stage: int, stages: int, micro_batches: int, virtual_stages: int) -> list[Computation]:
    """All forwards, then all backwards."""
    forwards: list[Computation] = [("F", stage, number) for number in range(micro_batches)]
    return [*forwards, *(("B", stage, number) for number in range(micro_batches))]


SCHEDULE = Schedule(
    name="gpipe",
    methods="backpropagation",
    actions=with_messages(order),
    demand=any_number,
)
