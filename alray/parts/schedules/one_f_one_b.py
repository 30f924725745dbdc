"""1f1b: from the first gradient on, each stage takes turns: one backward, one forward.

Four micro-batches on three stages with F = 1 s and B = 2 s; updates and messages take no time:

    stage 0   FFF....BBFBB.BB.BB
    stage 1   .FF..BBFBBFBB.BB..
    stage 2   ..FBBFBBFBBFBB....

It takes as long as gpipe, but stage s of S never holds the activations of more than S - s micro-batches. Narayanan et
al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019, with a flush after each mini-batch.
"""

from __future__ import annotations

from alray.planning.schedules.micro_batches import one_per_stage
from alray.planning.schedules.pipeline import with_messages
from alray.planning.schedules.schedule import Computation, Schedule


def order(stage: int, stages: int, micro_batches: int, virtual_stages: int) -> list[Computation]:
    """Forwards until the first gradient can arrive; from then on a backward and a forward in turns."""
    ahead = min(micro_batches, stages - stage)
    listed: list[Computation] = [("F", stage, number) for number in range(ahead)]
    for number in range(micro_batches):
        listed.append(("B", stage, number))
        if number + ahead < micro_batches:
            listed.append(("F", stage, number + ahead))
    return listed


SCHEDULE = Schedule(
    name="1f1b",
    methods="backpropagation",
    actions=with_messages(order),
    default_on=("several stages",),
    demand=one_per_stage("1f1b"),
)
