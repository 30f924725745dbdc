"""Attempts: a run that fails or is resumed starts anew, and the records of each start are one attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from alray.prediction.plan import Plan
from alray.run_folder.records import (
    EngineName,
    EvaluationRecord,
    EventRecord,
    PlanRecord,
    Record,
    StageRecord,
    StepRecord,
)

# Two plans that agree in these keys predict the same timeline. Costs may differ: each attempt may measure them again.
_SAME_TIMELINE = (
    "method",
    "schedule",
    "stages",
    "replicas",
    "partition",
    "in_flight",
    "cores",
    "micro_batches",
    "virtual_stages",
    "stage_speed",
    "in_turns",
)


@dataclass(frozen=True)
class Attempt:
    """The records of one attempt, in the order in which they were written.

    The counters of a stage (`StageRecord.bytes_sent`) restart with each attempt. Its clock may restart too.
    """

    plan: dict[str, Any] | None  # the plan of this attempt, as in `plan.json`; None if no plan was recorded
    records: tuple[Record, ...]
    engine: EngineName | None = None

    @property
    def stage_records(self) -> list[StageRecord]:
        return [record for record in self.records if isinstance(record, StageRecord)]

    @property
    def timed(self) -> list[StageRecord]:
        """The stage records after warm-up."""
        return [record for record in self.stage_records if not record.warm_up]

    def ran(self, plan: Plan) -> bool:
        """Whether this attempt ran with `plan`, so that its times can be compared with the plan's prediction."""
        if self.plan is None:
            return True
        value = plan.as_json()
        return self.plan["costs"]["device"] == plan.costs.device and all(
            _listed(self.plan.get(key, False)) == _listed(value[key]) for key in _SAME_TIMELINE
        )


def split_attempts(records: Sequence[Record]) -> list[Attempt]:
    """The attempts that did any work, in order.

    Each attempt begins with an event `started` or `resumed`. Its plan record may stand before or after that event.
    """
    found: list[Attempt] = []
    current: list[Record] = []
    plan: dict[str, Any] | None = None
    engine: EngineName | None = None

    def close() -> None:
        if any(isinstance(record, StepRecord | StageRecord | EvaluationRecord) for record in current):
            found.append(Attempt(plan, tuple(current), engine))
        current.clear()

    for record in records:
        if isinstance(record, EventRecord) and record.event in ("started", "resumed"):
            close()
        if isinstance(record, PlanRecord):
            close()
            plan, engine = record.plan, record.engine
        current.append(record)
    close()
    return found


def timed_records(effective_records: Sequence[Record], plan: Plan) -> list[StageRecord]:
    """The stage records that figures of time are computed from: after warm-up, from attempts that ran with `plan`.

    Args:
        effective_records: the records of a run without lost work, see `alray.run_folder.records.effective`.
    """
    return [record for attempt in split_attempts(effective_records) if attempt.ran(plan) for record in attempt.timed]


def timed_plan(effective_records: Sequence[Record], plan: Plan) -> Plan:
    """The plan under which figures of time were measured last: `plan`, with which the run last ran, or an earlier one
    where that was not measured, as after a resume of a few mini-batches on other stages."""
    attempts = split_attempts(effective_records)
    if any(attempt.timed for attempt in attempts if attempt.ran(plan)):
        return plan
    measured = [attempt.plan for attempt in attempts if attempt.timed and attempt.plan is not None]
    return Plan.from_json(measured[-1]) if measured else plan


def _listed(value: Any) -> Any:
    """A tuple as the list that JSON reads back; any other value unchanged."""
    return list(value) if isinstance(value, tuple) else value
