"""A comparison: one plan for each schedule that suits a method, on each number of stages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from alray.core.errors import PlanError, UserCodeError
from alray.planning.prediction.costs import Costs, Link
from alray.planning.prediction.make import make_plan
from alray.planning.prediction.plan import Plan
from alray.planning.prediction.setting import StepSetting
from alray.planning.schedules.schedule import Schedule
from alray.planning.schedules.table import SCHEDULES, default_schedule, schedules_for


@dataclass(frozen=True)
class Alternative:
    """One row: a schedule on a number of stages, with the cut that `partition: auto` chooses. A schedule that cannot
    run has a reason instead of figures."""

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
    predicted_step_range_s: tuple[float, float] | None = None  # as of a `Plan`
    gradient_delay: int = 0  # as of a `Schedule`

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_plan(cls, plan: Plan) -> Alternative:
        """The row with the figures of a plan."""
        return cls(
            schedule=plan.schedule_name,
            stages=plan.stages,
            micro_batches=plan.micro_batches,
            virtual_stages=plan.virtual_stages,
            partition=plan.partition,
            predicted_step_time_s=plan.predicted_step_time_s,
            predicted_bubble=plan.predicted_bubble,
            bound_s=plan.bound_s,
            peak_memory_bytes=tuple(own.memory.total_bytes for own in plan.stage_plans),
            predicted_step_range_s=plan.predicted_step_range_s,
            gradient_delay=SCHEDULES[plan.schedule].gradient_delay,
        )


def schedules_on(stages: int, *, local_losses: bool, in_parts: bool = False) -> tuple[Schedule, ...]:
    """The schedules to compare. On one stage there is nothing to overlap, so only the default one is left.

    Args:
        in_parts: on one stage also a pipeline's, if the method has any: in micro-batches a mini-batch needs less
            memory.
    """
    if stages == 1:
        own = default_schedule(local_losses=local_losses, stages=1)
        return (own, default_schedule(local_losses=False, stages=2)) if in_parts and not local_losses else (own,)
    return tuple(schedule for schedule in schedules_for(local_losses=local_losses) if not schedule.one_stage)


def compare_plans(
    *,
    method: str,
    local_losses: bool,
    costs: Costs,
    stages: Iterable[int],
    in_flight: int,
    micro_batches: int | None = None,
    virtual_stages: int | None = None,
    replicas: int = 1,
    cores: int | None = None,
    links_of: Callable[[int], Sequence[Link | None]] = lambda stages: (),
    place: Callable[[StepSetting], StepSetting] = lambda setting: setting,
    besides: str | None = None,
    recomputes: bool = False,
    clips_together: bool = False,
) -> tuple[Alternative, ...]:
    """A row for each schedule of the method on each number of stages, sorted by step time; what cannot run comes last.

    The figures are those of `make_plan` with `partition: auto`.

    Args:
        local_losses: whether the method has them.
        micro_batches: for the schedules that cut mini-batches.
        virtual_stages: for those that need several on each stage, and a further row of those that may have them; None:
            the defaults of the spec.
        links_of: the links between so many stages, as `StepSetting` takes them.
        place: completes the setting of a row by what its stages run on. It may raise PlanError: then it cannot run.
        besides: a schedule of a file or of a package, which is compared too on the stages that it is for.
        recomputes: whether stages keep inputs only, and compute forwards again, in schedules that cut mini-batches.
        clips_together: as in `StepSetting`.
    """
    rows = []
    for count in stages:
        names = [schedule.name for schedule in schedules_on(count, local_losses=local_losses)]
        if besides is not None and SCHEDULES[besides].stages_fault(count) is None:
            names.append(besides)
        layouts = [
            (name, SCHEDULES[name], virtual)
            for name in names
            for virtual in _virtual_stages(
                SCHEDULES[name], virtual_stages, most=len(costs.components) // count if count > 1 else 1
            )
        ]
        for name, schedule, virtual in layouts:
            parts = schedule.default_micro_batches(count, costs.batch_size)
            if micro_batches is not None and schedule.cuts_mini_batches:
                parts = micro_batches
            try:
                asked = StepSetting(
                    schedule=name,
                    costs=costs,
                    stages=count,
                    in_flight=in_flight,
                    micro_batches=parts,
                    virtual_stages=virtual,
                    replicas=replicas,
                    cores=cores,
                    links=tuple(links_of(count)),
                    recomputes=recomputes and schedule.cuts_mini_batches,
                    clips_together=clips_together,
                )
                setting = place(asked)
                plan = make_plan(
                    setting, "auto", method=method, steps_per_epoch=1, total_steps=None, evaluation_batches=0
                )
            except (PlanError, UserCodeError) as error:  # a block may not take so few samples
                rows.append(Alternative(schedule.name, count, parts, virtual, refused=error.problems[0].message))
            else:
                rows.append(Alternative.of_plan(plan))
    return tuple(sorted(rows, key=_rank))


def _virtual_stages(schedule: Schedule, asked: int | None, *, most: int) -> list[int]:
    """The numbers of virtual stages to compare.

    Args:
        most: as many as there are components for on each stage.
    """
    usual = schedule.default_virtual_stages
    if asked is None or not schedule.has_virtual_stages or asked == usual:
        return [usual]
    if usual > 1:
        return [asked]
    return [usual, asked] if asked <= most else [usual]


def _rank(row: Alternative) -> tuple[bool, float, int]:
    # Steps are rounded, because equal steps may differ in their last digits; then fewer stages come first.
    step = row.predicted_step_time_s
    return step is None, float(f"{step or 0.0:.10g}"), row.stages
