"""The common part of the schedules of local losses: one list of actions, with a few left out at the pipeline's ends."""

from __future__ import annotations

from alray.schedules.actions import Action, parse
from alray.schedules.schedule import Actions


def in_order(text: str) -> Actions:
    """The actions of a stage between two others, such as "R F S R.1 L S.1 B U".

    The first stage receives nothing, the last one sends nothing, and a stage alone has no barrier.
    """
    listed = [parse(f"0{word[0]}0{word[1:]}") for word in text.split()]

    def actions(
        stage: int, stages: int, batch: int, micro_batches: int = 1, virtual_stages: int = 1
    ) -> tuple[Action, ...]:
        absent = {"R": stage == 0, "S": stage == stages - 1, "W": stages == 1}
        return tuple(Action(stage, each.kind, batch, each.part) for each in listed if not absent.get(each.kind))

    return actions
