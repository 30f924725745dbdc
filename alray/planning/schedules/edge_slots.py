"""The slots of an edge: how many messages an edge between two stages must hold, so that no send waits for room.

A stage does the actions of its list in order. A receive waits for its message, and a send for a free slot. The slot of
an output is free once the last action that reads it is done; a gradient is copied out of its slot at once. So what a
stage does depends on the order of the lists and not on timing (Kahn, "The semantics of a simple language for parallel
programming", IFIP 1974), and the lists themselves tell how many slots are ever in use.

The fewest slots with which lists still end are not computed, because a memory limit would gain little by them: a slot
holds what crosses one boundary, while a stage keeps all activations of as many micro-batches. docs/experiments.md has
the numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache

from alray.core.errors import PlanError
from alray.planning.schedules.actions import Action
from alray.planning.schedules.table import SCHEDULES

_MINI_BATCHES = 2
"""Mini-batches that the lists have. All later ones overlap with the one before as the second does with the first."""
_Message = tuple[int, int, int, bool]
"""Mini-batch, virtual stage that receives it, micro-batch, and whether it goes down, as gradients do."""


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
        stage: SCHEDULES[schedule].run_of(stage, stages, _MINI_BATCHES, micro_batches, virtual_stages)
        for stage in (source, goal)
    }
    return slots_in_use(lists[source], lists[goal], down=down)


def slots_in_use(sender: Sequence[Action], receiver: Sequence[Action], *, down: bool) -> int:
    """The most slots in use on the edge between two stages with these lists, as in `most_in_use`.

    Before each action of the receiver, the sender does as many of its actions as it can: it stops only at a receive of
    a message that the receiver has not sent yet. So the edge is as full as it can ever be.

    Raises:
        PlanError: where the two wait for each other for ever.
    """
    wanted = {_received(action) for action in receiver if action.kind == "R"}
    if sender is receiver:
        return _handed_over(receiver, down=down)
    on_edge = {_sent(action) for action in sender if action.kind == "S" and action.down == down} & wanted
    of_receiver = {_sent(action) for action in receiver if action.kind == "S"}
    freed = _slots_freed(receiver, on_edge, down=down)
    arrived_at_sender: set[_Message] = set()
    arrived_at_receiver: set[_Message] = set()
    ahead, position, in_use, most = 0, 0, 0, 0  # the next action of the sender, that of the receiver, and slots
    while True:
        while ahead < len(sender) and not _waits(sender[ahead], of_receiver, arrived_at_sender):
            if sender[ahead].kind == "S" and _sent(sender[ahead]) in on_edge:
                arrived_at_receiver.add(_sent(sender[ahead]))
                in_use += 1
            ahead += 1
        most = max(most, in_use)
        if position == len(receiver):
            return most
        action = receiver[position]
        if _waits(action, on_edge, arrived_at_receiver):
            raise PlanError(
                f"`{action}` waits for a message that is sent after `{sender[ahead]}`, which waits for this stage",
                hint="no two stages may wait for each other",
            )
        if action.kind == "S":
            arrived_at_sender.add(_sent(action))
        in_use -= freed.get(position, 0)
        position += 1


def _handed_over(actions: Sequence[Action], *, down: bool) -> int:
    """The most messages in use that a stage with this list hands over from one of its virtual stages to another."""
    handed_over = {_sent(action) for action in actions if action.kind == "S" and action.down == down}
    handed_over &= {_received(action) for action in actions if action.kind == "R"}
    freed = _slots_freed(actions, handed_over, down=down)
    in_use, most = 0, 0
    for position, action in enumerate(actions):
        in_use += action.kind == "S" and _sent(action) in handed_over
        most = max(most, in_use)
        in_use -= freed.get(position, 0)
    return most


def _sent(action: Action) -> _Message:
    return action.batch, action.peer, action.number, action.down


def _received(action: Action) -> _Message:
    return action.batch, action.stage, action.number, action.down


def _waits(action: Action, of_other: set[_Message], arrived: set[_Message]) -> bool:
    """Whether an action must wait for the other one of the two stages.

    It must if it receives a message of that stage which has not arrived. A message of a third stage counts as arrived.

    Args:
        of_other: all messages that the other stage sends.
        arrived: those of them that it has sent.
    """
    return action.kind == "R" and _received(action) in of_other and _received(action) not in arrived


def _slots_freed(receiver: Sequence[Action], on_edge: set[_Message], *, down: bool) -> dict[int, int]:
    """How many slots of the edge each action of the receiver frees, by the index of the action in the list."""
    last_uses: dict[_Message, int] = {}
    for index, action in enumerate(receiver):
        message = (action.batch, action.stage, action.number, down)
        if down:
            uses = action.down and action.kind == "R"  # a gradient is copied out when it is received
        else:
            uses = action.kind in "RFBIGS"  # all that reads an output, up to the last part of its backward
        if uses and message in on_edge:
            last_uses[message] = index
    return dict(Counter(last_uses.values()))
