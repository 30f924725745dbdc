"""The slots of an edge: how many messages an edge between two stages must hold, so that no send waits for room.

A stage does the actions of its list in order. A receive waits for its message, and a send for a free slot. The slot of
an output is free once the last action that reads it is done; a gradient is copied out of its slot at once. So what a
stage does depends on the order of the lists and not on timing (Kahn, "The semantics of a simple language for parallel
programming", IFIP 1974), and the lists themselves tell how many slots are ever in use.

The fewest slots with which lists still end are not computed, because a memory limit would gain little by them: a slot
holds what crosses one boundary, while a stage keeps all activations of as many micro-batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache

from alray.planning.schedules.actions import Action, ActionKind
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
    """
    wanted = {_received(action) for action in receiver if action.kind == "R"}
    if sender is receiver:
        return _handed_over(receiver, down=down)
    on_edge = {_sent(action) for action in sender if action.kind == "S" and action.down == down} & wanted
    of_receiver = {_sent(action) for action in receiver if action.kind == "S"}
    freed = _slots_freed(receiver, on_edge, down=down)
    # The sender stops at what it receives of the receiver alone. All else that it does fills no slot.
    of_both = [each for each in sender if _is_on(each, "S", on_edge) or _is_on(each, "R", of_receiver)]
    arrived_at_sender: set[_Message] = set()
    ahead, in_use, most = 0, 0, 0  # the next action of the sender, and slots

    def send_all() -> None:
        nonlocal ahead, in_use, most
        while ahead < len(of_both) and (of_both[ahead].kind == "S" or _received(of_both[ahead]) in arrived_at_sender):
            if of_both[ahead].kind == "S":
                in_use += 1
            ahead += 1
        most = max(most, in_use)

    send_all()
    for position, action in enumerate(receiver):
        in_use -= freed.get(position, 0)
        if action.kind == "S":
            arrived_at_sender.add(_sent(action))
            send_all()
    return most


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


def _is_on(action: Action, kind: ActionKind, messages: set[_Message]) -> bool:
    """Whether an action sends, or receives, one of these messages."""
    return action.kind == kind and (_sent if kind == "S" else _received)(action) in messages


def _slots_freed(receiver: Sequence[Action], on_edge: set[_Message], *, down: bool) -> dict[int, int]:
    """How many slots of the edge each action of the receiver frees, by the index of the action in the list."""
    last_uses = {
        (action.batch, action.stage, action.number, down): index
        for index, action in enumerate(receiver)
        # A gradient is copied out when it is received. An output stays for all that reads it, up to the last part of
        # its backward.
        if (action.down and action.kind == "R" if down else action.kind in "RFBIGS")
    }
    return dict(Counter(index for message, index in last_uses.items() if message in on_edge))
