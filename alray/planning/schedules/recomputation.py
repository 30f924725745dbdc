"""Recomputation: a stage keeps the inputs of micro-batches, and computes a forward again before its backward.

A micro-batch that waits for its gradient then takes the memory of its input alone. Chen et al., "Training Deep Nets
with Sublinear Memory Cost" (arXiv 1604.06174), with a virtual stage as the segment. Four micro-batches by 1f1b on three
stages with F = C = 1 s and B = 2 s; updates and messages take no time:

    stage 0   FFFC...BBFCBBC.BBCBB
    stage 1   .FFC.BBFCBBFCBBCBB..
    stage 2   ..FBBFBBFBB.FBB.....

C, the second forward, needs no gradient. It stands right before the receive of it, so a stage that has to wait computes
meanwhile. It could begin earlier where a stage is idle earlier, but the stage would then hold the graphs of two
micro-batches. Where the backward follows its forward at once, nothing is to be saved: F leaves the graph, and there is
no C.

`schedule_with` also adds the barrier W before updates by gradients that are clipped together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from alray.planning.schedules.actions import COMPUTE, Action
from alray.planning.schedules.schedule import Schedule
from alray.planning.schedules.table import SCHEDULES


@cache
def schedule_with(name: str, *, recomputes: bool, clips_together: bool = False) -> Schedule:
    """The schedule of this name, as a pipeline with what is wanted. Raises PlanError where there is none.

    Args:
        clips_together: whether the gradients of all stages are clipped together. Then each stage waits at a barrier
            before its first update.
    """
    schedule = SCHEDULES[name]
    if not schedule.is_pipeline or not (recomputes or clips_together):
        return schedule

    def actions(stage: int, stages: int, batch: int, micro_batches: int, virtual_stages: int) -> tuple[Action, ...]:
        listed = schedule.actions(stage, stages, batch, micro_batches, virtual_stages)
        if recomputes:
            listed = with_recomputation(listed)
        # One update alone waits for no other.
        return _with_barrier(listed) if clips_together and stages * virtual_stages > 1 else listed

    return replace(schedule, actions=actions)


def with_recomputation(actions: Sequence[Action]) -> tuple[Action, ...]:
    """The list of a stage with an action C for each micro-batch whose backward does not follow at once."""
    listed: list[Action] = []
    open_forwards: set[Action] = set()
    late: set[Action] = set()
    current = max(action.batch for action in actions)
    computed: Action | None = None  # the last computation
    for action in actions:
        forward = Action(action.stage, "F", action.batch, action.number)
        if action.batch < current and forward not in late:  # its forward is in the list of the mini-batch before
            late.add(forward)
            open_forwards.add(forward)
        if forward in open_forwards and (action.kind in ("B", "I") or (action.kind == "R" and action.down)):
            open_forwards.remove(forward)
            if computed != forward:
                computed = Action(action.stage, "C", action.batch, action.number)
                listed.append(computed)
        if action.kind in COMPUTE:
            computed = action
        if action.kind == "F":
            open_forwards.add(action)
        listed.append(action)
    return tuple(listed)


def _with_barrier(actions: Sequence[Action]) -> tuple[Action, ...]:
    """The list of a stage with a barrier before its first update."""
    first = next(place for place, action in enumerate(actions) if action.kind == "U")
    barrier = Action(min(action.stage for action in actions), "W", actions[first].batch)
    return (*actions[:first], barrier, *actions[first:])
