"""The common part of the schedules of local losses: one list of actions, with a few left out at the pipeline's ends.

With virtual stages (cyclic placement) stage s of S computes the virtual stages s, s + S, s + 2S and so on, and a
mini-batch goes round all stages once for each of them. A stage does all its work for one mini-batch before it begins
the next one, and between two barriers it does all its work for one virtual stage before it begins the next one.

Why no two stages can wait for each other for ever: number the actions by mini-batch, then by the part of the list
between two barriers, then by the number of the virtual stage within its stage, then by stage. Every stage does its
actions in this order, and every wait is for an action that comes earlier in it. A receive waits for the send of the
virtual stage before. A send waits until an earlier message of its edge was received and its buffer released. Where a
stage holds several virtual stages, an edge has room for all messages of a mini-batch that go over it, so that message
is one of an earlier mini-batch. So there is always an action that can be done: the first one in this order that is not
done yet.
"""

from __future__ import annotations

from itertools import groupby

from alray.planning.schedules.actions import Action, parse
from alray.planning.schedules.placement import held, round_robin
from alray.planning.schedules.schedule import Actions


def in_order(text: str) -> Actions:
    """The actions of a stage between two others, such as "R F S R.1 L S.1 B U".

    With virtual stages the actions up to each barrier are repeated for each of them. The first virtual stage receives
    nothing, the last one sends nothing, and a stage alone has no barriers.
    """
    listed = [parse(f"0{word[0]}0{word[1:]}") for word in text.split()]
    phases = [(waits, list(phase)) for waits, phase in groupby(listed, key=lambda each: each.kind == "W")]

    def actions(stage: int, stages: int, batch: int, micro_batches: int, virtual_stages: int) -> tuple[Action, ...]:
        last = stages * virtual_stages - 1
        found = []
        for waits, phase in phases:
            if waits:
                found += [Action(stage, "W", batch, each.number) for each in phase if stages > 1]
                continue
            for own in held(round_robin, stage, stages, virtual_stages):
                absent = {"R": own == 0, "S": own == last}
                found += [Action(own, each.kind, batch, each.number) for each in phase if not absent.get(each.kind)]
        return tuple(found)

    return actions
