"""What a stage does with each mini-batch, as the loop reads it that has no action `L` of its own."""

from __future__ import annotations

from alray.plan.plan import Plan
from alray.schedules.actions import LABELS, MESSAGES, ActionKind


def action_list(plan: Plan, stage: int) -> list[tuple[ActionKind, str, str]]:
    """The actions of one mini-batch: kind, and what is printed before and after the number of the mini-batch."""
    return [
        (action.kind, f"{action.stage}{action.kind}", f".{action.part}" if action.part else "")
        for action in plan.actions(stage)
        if action.kind != "L" and not (action.kind in MESSAGES and action.part == LABELS)
    ]
