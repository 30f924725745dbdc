"""The attempts of a run: what stands between one start (or resume) and the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from alray.plan.plan import Plan
from alray.records import EventRecord, PlanRecord, Record, StageRecord

# Two plans that agree in these give the same timeline; costs may have been measured anew in between.
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
)


@dataclass(frozen=True)
class Attempt:
    """The records of one attempt, in the order they were written.

    Counters of a stage (`StageRecord.bytes_sent`) restart with each attempt, and its clock may.
    """

    plan: dict[str, Any] | None  # the plan it ran with, as in `plan.json`; None where no plan was recorded
    records: tuple[Record, ...]

    @property
    def stage_records(self) -> list[StageRecord]:
        return [record for record in self.records if isinstance(record, StageRecord)]

    def ran(self, plan: Plan) -> bool:
        """Whether it ran with this plan, so that its times may be set beside the plan's prediction."""
        if self.plan is None:
            return True
        value = plan.as_json()
        return self.plan["costs"]["device"] == plan.costs.device and all(
            _listed(self.plan[key]) == _listed(value[key]) for key in _SAME_TIMELINE
        )


def split_attempts(records: Sequence[Record]) -> list[Attempt]:
    """The attempts that got as far as training, in order.

    A run that goes on after a failure or a resume writes an event `started` or `resumed`; its plan record may
    stand on either side of that event.
    """
    found: list[Attempt] = []
    current: list[Record] = []
    plan: dict[str, Any] | None = None

    def close() -> None:
        if any(isinstance(record, StageRecord) for record in current):
            found.append(Attempt(plan, tuple(current)))
        current.clear()

    for record in records:
        if isinstance(record, EventRecord) and record.event in ("started", "resumed"):
            close()
        if isinstance(record, PlanRecord):
            close()
            plan = record.plan
        current.append(record)
    close()
    return found


def _listed(value: Any) -> Any:
    """Tuples as lists, as JSON reads them back."""
    return list(value) if isinstance(value, tuple) else value
