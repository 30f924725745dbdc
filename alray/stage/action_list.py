"""What a stage does with each mini-batch, in its schedule's order."""

from __future__ import annotations

from alray.plan.actions import ActionKind
from alray.plan.plan import Plan
from alray.plan.schedules import step_actions
from alray.spec.micro_batches import PIPELINES


def action_list(plan: Plan, stage: int) -> list[tuple[ActionKind, str, str]]:
    """The actions of one mini-batch: kind, and what is before and behind the mini-batch's number in its text.

    A pipeline on one stage has nobody to wait for: each micro-batch goes forward and back before the next one.
    """
    if plan.schedule not in PIPELINES:
        actions = step_actions(plan.schedule, stage, plan.stages, 0)
        return [(action.kind, f"{action.stage}{action.kind}", "") for action in actions]
    listed: list[tuple[ActionKind, str, str]] = []
    for number in range(plan.micro_batches):
        behind = f".{number}" if number else ""
        listed += [("F", "0F", behind), ("B", "0B", behind)]
    return [*listed, ("U", "0U", "")]
