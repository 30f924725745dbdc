"""The slots of an edge: how many messages an edge between two stages must hold, so that no send waits for room.

A stage does the actions of its list in order. A receive waits for its message, and a send for a free slot. The slot of
an output is free once the last action that reads it is done; a gradient is copied out of its slot at once. So what a
stage does depends on the order of the lists and not on timing (Kahn, "The semantics of a simple language for parallel
programming", IFIP 1974), and the lists themselves tell how many slots are ever in use.

The fewest slots with which lists still end are not computed, because a memory limit would gain little by them: a slot
holds what crosses one boundary, while a stage keeps all activations of as many micro-batches.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cache

from alray.planning.schedules.actions import Action
from alray.planning.schedules.schedule import run_of
from alray.planning.schedules.table import SCHEDULES

_MINI_BATCHES = 2
"""Mini-batches that the lists have. All later ones overlap with the one before as the second does with the first."""


@cache
def most_in_use(
    schedule: str, source: int, goal: int, stages: int, micro_batches: int, virtual_stages: int, *, down: bool
) -> int:
    """The most slots that are ever in use on the edge from stage `source` to stage `goal`.

    Only these two stages are looked at, as if no other stage held them up. With so many slots no send waits. Where both
    are one stage, it is the most messages that the stage keeps between handing them over and using them.

    Args:
        down: whether the edge carries gradients.
    """
    lists = {
        stage: run_of(SCHEDULES[schedule], stage, stages, _MINI_BATCHES, micro_batches, virtual_stages)
        for stage in (source, goal)
    }
    return slots_in_use(lists[source], lists[goal], down=down)


def slots_in_use(sender: Sequence[Action], receiver: Sequence[Action], *, down: bool) -> int:
    """The most slots in use on the edge between two stages with these lists, as in `most_in_use`.

    The sender goes on until it receives what the receiver has not sent yet. So each message takes its slot as soon as
    the receiver has sent all that its sender receives before, and the edge is as full as it can ever be.
    """
    sent_at = {_sent(action): index for index, action in enumerate(receiver) if action.kind == "S"}
    last_uses = {
        (action.batch, action.stage, action.number, down): index
        for index, action in enumerate(receiver)
        # A gradient is copied out when it is received. An output stays for all that reads it, up to the last part of
        # its backward.
        if (action.down and action.kind == "R" if down else action.kind in "RFBIGS")
    }
    is_own = sender is receiver
    taken: list[int] = []
    freed: list[int] = []
    since = -1
    for index, action in enumerate(sender):
        if is_own:
            since = index
        elif action.kind == "R":
            since = max(since, sent_at.get((action.batch, action.stage, action.number, action.down), -1))
        if action.kind == "S" and action.down == down and _sent(action) in last_uses:
            taken.append(since)
            freed.append(last_uses[_sent(action)])
    freed.sort()
    # A stage makes the next message before it frees the slot of the one that it is made of.
    number_freed = bisect_left if is_own else bisect_right
    return max((before + 1 - number_freed(freed, own) for before, own in enumerate(taken)), default=0)


def _sent(action: Action) -> tuple[int, int, int, bool]:
    """Mini-batch, virtual stage that receives it, micro-batch, and whether it goes down, as gradients do."""
    return action.batch, action.peer, action.number, action.down
