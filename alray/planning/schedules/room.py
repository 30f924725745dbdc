"""The room on the edges of a pipeline: how many messages an edge must hold.

A stage does its list in order. A receive waits for its message, and a send for a free slot. The slot of an output is
free when the backward that reads it is done; a gradient is copied out of its slot at once. So what a stage does depends
on the order of the lists and not on timing (Kahn, "The semantics of a simple language for parallel programming", IFIP
1974), and the lists themselves tell how many slots are ever in use.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from alray.core.errors import PlanError
from alray.planning.schedules.actions import Action
from alray.planning.schedules.table import SCHEDULES

_MINI_BATCHES = 2  # of more, each begins as the second does
_Message = tuple[int, int, int, bool]
"""Mini-batch, virtual stage that it goes to, micro-batch, and whether it goes down."""


@cache
def most_in_use(
    schedule: str, source: int, goal: int, stages: int, micro_batches: int, virtual_stages: int, *, down: bool
) -> int:
    """The most slots that are ever in use on the edge from stage `source` to stage `goal`, if nothing but the two hold
    each other up. With so many, no send waits. From a stage to itself: the most messages that it hands over and uses.

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

    The sender runs as far ahead as the receiver lets it before each action of the receiver.

    Raises:
        PlanError: where the two wait for each other for ever.
    """
    taken = {_received(action) for action in receiver if action.kind == "R"}
    if sender is receiver:
        return _handed_over(receiver, down=down)
    coming = {_sent(action) for action in sender if action.kind == "S" and action.down == down} & taken
    returning = {_sent(action) for action in receiver if action.kind == "S"}
    frees = _frees(receiver, coming, down=down)
    sent: set[_Message] = set()  # by the receiver, which the sender may wait for
    ahead, position, in_use, most = 0, 0, 0, 0
    arrived: set[_Message] = set()
    while True:
        while ahead < len(sender) and not (_is_late(sender[ahead], returning, sent)):
            if sender[ahead].kind == "S" and _sent(sender[ahead]) in coming:
                arrived.add(_sent(sender[ahead]))
                in_use += 1
            ahead += 1
        most = max(most, in_use)
        if position == len(receiver):
            return most
        action = receiver[position]
        if _is_late(action, coming, arrived):
            raise PlanError(
                f"`{action}` waits for a message that is sent after `{sender[ahead]}`, which waits for this stage",
                hint="no two stages may wait for each other",
            )
        if action.kind == "S":
            sent.add(_sent(action))
        in_use -= frees.get(position, 0)
        position += 1


def _handed_over(own: Sequence[Action], *, down: bool) -> int:
    """The most messages in use that a stage with this list hands over to itself."""
    coming = {_sent(action) for action in own if action.kind == "S" and action.down == down}
    coming &= {_received(action) for action in own if action.kind == "R"}
    frees = _frees(own, coming, down=down)
    in_use, most = 0, 0
    for position, action in enumerate(own):
        in_use += action.kind == "S" and _sent(action) in coming
        most = max(most, in_use)
        in_use -= frees.get(position, 0)
    return most


def _sent(action: Action) -> _Message:
    return action.batch, action.peer, action.number, action.down


def _received(action: Action) -> _Message:
    return action.batch, action.stage, action.number, action.down


def _is_late(action: Action, known: set[_Message], there: set[_Message]) -> bool:
    """Whether it receives a message of the other stage that is not there."""
    return action.kind == "R" and _received(action) in known and _received(action) not in there


def _frees(receiver: Sequence[Action], coming: set[_Message], *, down: bool) -> dict[int, int]:
    """How many slots of the edge are free after each action of the receiver, by its index in the list."""
    places: dict[_Message, int] = {}
    for place, action in enumerate(receiver):
        message = (action.batch, action.stage, action.number, down)
        uses = action.down and action.kind == "R" if down else action.kind in "RFBIGS"
        if uses and message in coming:
            places[message] = place
    found: dict[int, int] = {}
    for place in places.values():
        found[place] = found.get(place, 0) + 1
    return found
