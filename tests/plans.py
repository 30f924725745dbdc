"""Plans from plain values, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from alray.planning.prediction.costs import Costs
from alray.planning.prediction.make import make_plan
from alray.planning.prediction.plan import Plan
from alray.planning.prediction.setting import StepSetting

_OF_SETTING = {field.name for field in fields(StepSetting)}


def plan_of(*, partition: str | Sequence[int], **values: Any) -> Plan:
    """A plan. values: of the setting and of the plan; None is as if it were left out."""
    setting = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in values.items()
        if name in _OF_SETTING and value is not None
    }
    others = {name: value for name, value in values.items() if name not in _OF_SETTING}
    return make_plan(StepSetting(**setting), partition, **others)


def plan_on_two_stages(costs: Costs, **changes: Any) -> Plan:
    """A streamed plan, ten mini-batches an epoch, unless `changes` say otherwise; see `plan_of`."""
    values: dict[str, Any] = {
        "method": "associated_learning",
        "schedule": "streamed",
        "stages": 2,
        "replicas": 1,
        "partition": "auto",
        "in_flight": 4,
        "cores": None,
        "steps_per_epoch": 10,
        "total_steps": 100,
        "evaluation_batches": 0,
    }
    return plan_of(costs=costs, **{**values, **changes})
