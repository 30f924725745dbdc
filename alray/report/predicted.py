"""What a plan predicts of its mini-batches, simulated anew from the costs it holds."""

from __future__ import annotations

from alray.plan.plan import Plan
from alray.plan.predict import predicted_timeline
from alray.plan.timeline import TimedAction, Timeline


def predicted_bars(plan: Plan, first_batch: int, num_batches: int) -> list[TimedAction]:
    """The actions of `num_batches` mini-batches from `first_batch` on, of a run without evaluations.

    Where the stages share too few processors the simulation, in which each has its own, is stretched evenly
    to the step time the plan predicts.
    """
    bars = _timeline(plan, first_batch + num_batches).bars(first_batch, first_batch + num_batches)
    steady_s = _timeline(plan, None).step_time_s
    if plan.predicted_step_time_s <= 1.001 * steady_s:  # as much may be rounding
        return bars
    slowdown = plan.predicted_step_time_s / steady_s
    return [bar._replace(start_s=bar.start_s * slowdown, end_s=bar.end_s * slowdown) for bar in bars]


def steady_timeline(plan: Plan) -> tuple[Timeline, range]:
    """As many mini-batches as a prediction simulates, each stage with its own device, and which of them are in steady
    state: those that the predicted step time is the mean of."""
    timeline = _timeline(plan, None)
    num_batches = len(timeline.completed_s)
    return timeline, range((num_batches - 1) // 2 + 1, num_batches) if num_batches > 1 else range(1)


def _timeline(plan: Plan, num_batches: int | None) -> Timeline:
    return predicted_timeline(
        plan.schedule,
        plan.costs,
        plan.partition,
        plan.in_flight,
        num_batches=num_batches,
        micro_batches=plan.micro_batches,
        virtual_stages=plan.virtual_stages,
        stage_speed=plan.stage_speed,
    )
