"""dualpipe_v: two virtual stages on each stage in the shape of a V; forwards of one meet backwards of the other.

Four micro-batches on two stages with two virtual stages each, F = I = G = 1 s and B = 2 s; updates and messages take
no time:

    stage 0   FFFFIGFFBBFBBBBF.BBBBIGIG
    stage 1   .FFFFFBBFBBFBBFBBBBBBIIGG

Backwards are whole in the middle, where a stage has a forward to do in between, and split at both ends, where another
stage waits for their first half. DualPipe (DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437, section
3.2.1) feeds micro-batches from both ends and holds two copies of the weights. This half of it, cut by Sea AI Lab
("DualPipe could be better without the Dual", 2025), holds one. The order is that of DeepSeek's DualPipeV and of torch's
ScheduleDualPipeV. Those run a forward and a backward at the same time, so that one computes while the other
communicates; here one comes after the other. On one stage backwards are not split.
"""

from __future__ import annotations

from alray.planning.schedules.micro_batches import Fault
from alray.planning.schedules.pipeline import Step, numbered, with_messages
from alray.planning.schedules.placement import v_shaped
from alray.planning.schedules.schedule import Computation, Schedule


def order(stage: int, stages: int, micro_batches: int, virtual_stages: int) -> list[Computation]:
    """The order in eight steps, as DeepSeek's code has them."""
    low, high, above = stage, 2 * stages - 1 - stage, stages - 1 - stage
    last_in = [high, low] * (stage + 1)
    whole, split = last_in[: stage + 1], last_in[stage + 1 :]
    later = [*split, *[low] * above]  # G of these is still to be done, the oldest first
    steps: list[Step] = [("F", low)] * (2 * above)
    steps += [("F", low), ("F", high)] * (stage + 1)
    steps += [("I", high), ("G", high), ("F", high)] * above
    steps += [("F", low), ("B", high), ("F", high), ("B", low)] * (micro_batches - 2 * stages + stage + 1)
    steps += [("B", high), ("F", high), ("B", low)] * above
    steps += [("B", own) for own in whole]
    steps += [("I", own) for own in split]
    for own in later[:above]:
        steps += [("G", own), ("I", low)]
    steps += [("G", own) for own in later[above:]]
    return numbered(steps)


def demand(stages: int, micro_batches: int) -> Fault | None:
    """At least one micro-batch per virtual stage."""
    if stages == 1 or micro_batches >= 2 * stages:
        return None
    return (
        f"`dualpipe_v` needs at least two micro-batches per stage, got {micro_batches} for {stages}",
        f"use {2 * stages} or more, or fewer stages",
    )


ACTIONS = with_messages(order)
SCHEDULE = Schedule(
    name="dualpipe_v",
    methods="backpropagation",
    actions=ACTIONS,
    demand=demand,
    fewest_virtual_stages=2,
    most_virtual_stages=2,
    place=v_shaped,
)
