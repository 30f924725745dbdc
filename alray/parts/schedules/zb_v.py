"""zb_v: split backwards on two virtual stages of each stage, which lie in the shape of a V.

Five micro-batches on three stages with two virtual stages each and F = I = G = 1 s; updates and messages take no time:

    stage 0   FFFFFFIGFIGFIGIGFIGIGFIGIGIGIG..
    stage 1   .FFFFFFIGFIGFIGFIGIGFIGIIIGIGGG.
    stage 2   ..FFFFFFIGFIGFIGFIGFIGIIIIIGGGGG

The first stage holds the first and the last virtual stage, so the first gradient is there as soon as a forward has come
back to it. With equal F, I and G, and 2S - 1 micro-batches or more on S stages, a stage idles only while the first
micro-batch comes to it and the last gradient leaves it, and holds the activations of no more micro-batches than 1f1b.

ZB-V of Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024 (arXiv 2401.10241), section 6, and "Pipeline
Parallelism with Controllable Memory", NeurIPS 2024 (arXiv 2405.15362), in the handcrafted order that is also that of
torch's ScheduleZBVZeroBubble. On one stage backwards are not split.
"""

from __future__ import annotations

from alray.planning.schedules.micro_batches import any_number
from alray.planning.schedules.pipeline import Step, numbered, with_messages
from alray.planning.schedules.placement import v_shaped
from alray.planning.schedules.schedule import Computation, Schedule


def order(stage: int, stages: int, micro_batches: int, virtual_stages: int) -> list[Computation]:
    """The order for 2S - 1 micro-batches or more; with fewer, those that are not there are left out."""
    low, high = stage, 2 * stages - 1 - stage
    most = max(micro_batches, 2 * stages - 1)
    steps: list[Step] = [("F", low)] * (2 * (stages - stage) - 1)
    steps += [("F", high), ("F", low)] * stage
    steps += [("F", high), ("I", high), ("G", high)] * (stages - stage)
    steps += [
        *(("F", low), ("I", low), ("G", low)),
        *(("F", high), ("I", high), ("G", high)),
    ] * (most - (2 * stages - 1 - stage))
    steps += [("I", low), ("G", low), ("F", high), ("I", high), ("G", high)] * (stages - 1 - stage)
    steps += [("I", low), ("I", high)] * stage
    steps += [("I", low), ("G", low)] * (stages - stage)
    steps += [("G", high)] * stage
    steps += [("G", low)] * stage
    return [computation for computation in numbered(steps) if computation[2] < micro_batches]


SCHEDULE = Schedule(
    name="zb_v",
    methods="backpropagation",
    actions=with_messages(order),
    demand=any_number,
    fewest_virtual_stages=2,
    most_virtual_stages=2,
    place=v_shaped,
)
