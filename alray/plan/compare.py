"""Comparison: one plan for every schedule a method can run in and every number of stages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from alray.errors import PlanError
from alray.plan.costs import Costs
from alray.plan.make import make_plan
from alray.plan.plan import Plan
from alray.plan.schedules import LOCAL
from alray.spec.micro_batches import MICRO_BATCHED, PIPELINES, default_micro_batches, default_virtual_stages


@dataclass(frozen=True)
class Alternative:
    """One row: a schedule on a number of stages, each with its best cut. What cannot run says why, without figures."""

    schedule: str
    stages: int
    micro_batches: int
    virtual_stages: int
    partition: tuple[int, ...] | None = None
    predicted_step_time_s: float | None = None
    predicted_bubble: float | None = None
    bound_s: float | None = None
    peak_memory_bytes: tuple[int, ...] | None = None  # of each stage
    refused: str | None = None  # why it cannot run

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_plan(cls, plan: Plan) -> Alternative:
        """The row of a plan: its own figures."""
        return cls(
            schedule=plan.schedule,
            stages=plan.stages,
            micro_batches=plan.micro_batches,
            virtual_stages=plan.virtual_stages,
            partition=plan.partition,
            predicted_step_time_s=plan.predicted_step_time_s,
            predicted_bubble=plan.predicted_bubble,
            bound_s=plan.bound_s,
            peak_memory_bytes=tuple(own.memory.total_bytes for own in plan.stage_plans),
        )


def schedules_for(method: str, stages: int) -> tuple[str, ...]:
    """The schedules to compare for a method: on one stage just one, for there is nothing to overlap."""
    if method == "backpropagation":
        return ("single",) if stages == 1 else PIPELINES
    return ("streamed",) if stages == 1 else LOCAL


def compare_plans(
    *,
    method: str,
    costs: Costs,
    stages: Iterable[int],
    in_flight: int,
    micro_batches: int | None = None,
    virtual_stages: int | None = None,
    replicas: int = 1,
    cores: int | None = None,
    stage_speed: Sequence[float] | None = None,
    memory_limits: Sequence[int] | None = None,
) -> tuple[Alternative, ...]:
    """A row for every schedule of the method on every number of stages, the shortest step first, what cannot run last.

    micro_batches, virtual_stages: for the schedules that have them; None: the spec's defaults (virtual stages are
    given to `interleaved_1f1b` alone). stage_speed, memory_limits: of the devices in order; a row takes the first of
    them, and is refused where there are not enough. The figures are those of `make_plan` with `partition: auto`.
    """
    rows = []
    for count in stages:
        for schedule in schedules_for(method, count):
            parts = default_micro_batches(schedule, count)
            if micro_batches is not None and schedule in MICRO_BATCHED:
                parts = micro_batches
            virtual = default_virtual_stages(schedule)
            if virtual_stages is not None and schedule == "interleaved_1f1b":
                virtual = virtual_stages
            try:
                plan = make_plan(
                    method=method,
                    schedule=schedule,
                    stages=count,
                    replicas=replicas,
                    partition="auto",
                    in_flight=in_flight,
                    costs=costs,
                    cores=cores,
                    steps_per_epoch=1,
                    total_steps=None,
                    evaluation_batches=0,
                    micro_batches=parts,
                    virtual_stages=virtual,
                    stage_speed=None if stage_speed is None else stage_speed[:count],
                    memory_limits=None if memory_limits is None else memory_limits[:count],
                )
            except PlanError as error:
                rows.append(Alternative(schedule, count, parts, virtual, refused=error.problems[0].message))
            else:
                rows.append(Alternative.of_plan(plan))
    return tuple(sorted(rows, key=_rank))


def _rank(row: Alternative) -> tuple[bool, float, int]:
    # Rounded: equal steps may differ in their last digits, and then the one on fewer stages comes first.
    step = row.predicted_step_time_s
    return step is None, float(f"{step or 0.0:.10g}"), row.stages
