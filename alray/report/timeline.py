"""The actions of each stage over time, as the plan predicts them and as the stages' clocks measured them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

from alray.core.run_folder.records import Record
from alray.planning.prediction.plan import Plan
from alray.planning.prediction.predict import timeline_of
from alray.planning.prediction.timeline import TimedAction, Timeline
from alray.planning.schedules.actions import parse
from alray.report.attempts import split_attempts
from alray.report.lanes import DATA, Lane, View, action_of, batch_of, lanes_of

_STEADY = 64  # after this many mini-batches a pipeline without pauses is in its steady state


def measured_last(records: Sequence[Record], plan: Plan) -> list[Lane]:
    """The lanes to compare with the prediction: of the last traced attempt that ran with `plan`; may be empty."""
    for attempt in reversed(split_attempts(records)):
        if attempt.ran(plan) and (lanes := _lanes(attempt.records)):
            return lanes
    return []


def predicted_lanes(plan: Plan, num_batches: int) -> list[Lane]:
    """The predicted lanes of the first mini-batches of a run without evaluations, waits included.

    The simulation gives each stage its own processor. If the stages share fewer processors, all times are stretched by
    the same factor, so that they match the plan's predicted step time. Stages that take turns in one process compute
    one after another instead.
    """
    bars = timeline_of(plan, plan.partition, num_batches).bars()
    if plan.in_turns:
        bars = _one_after_another(bars)
    else:
        steady_s = timeline_of(plan, plan.partition).step_time_s
        if plan.predicted_step_time_s > 1.001 * steady_s:  # a smaller difference may be rounding
            slowdown = plan.predicted_step_time_s / steady_s
            bars = [bar._replace(start_s=bar.start_s * slowdown, end_s=bar.end_s * slowdown) for bar in bars]
    return lanes_of(_with_data(plan, bars), plan.stages)


def predicted_steady(plan: Plan, batches: range) -> View:
    """The predicted view of the time in which stage 0 does these mini-batches, at least one.

    In its steady state a pipeline repeats itself. A mini-batch far into the run is therefore taken from the prediction
    of an earlier one, under its number.
    """
    first = min(batches.start, _STEADY + 2 * plan.stages)
    lanes = predicted_lanes(plan, first + len(batches) + 1)
    begins = lanes[0].begins()
    start_s, end_s = begins[first], begins[first + len(batches)]
    later = batches.start - first
    return View([_renumbered(lane, later) for lane in lanes], start_s, end_s)


def steady_timeline(plan: Plan) -> tuple[Timeline, range]:
    """The simulated timeline of a plan, each stage on its own processor, and its mini-batches in steady state.

    The predicted step time is the mean over these mini-batches.
    """
    timeline = timeline_of(plan, plan.partition)
    num_batches = timeline.program.steady_batches
    return timeline, range((num_batches - 1) // 2 + 1, num_batches) if num_batches > 1 else range(1)


def _lanes(records: Iterable[Record]) -> list[Lane]:
    spans: dict[tuple[int, int], list[TimedAction]] = {}
    for record in records:
        if record.kind == "stage" and record.spans:
            lane = spans.setdefault((record.replica, record.stage), [])
            lane.extend(TimedAction(record.stage, span.action, span.start_s, span.end_s) for span in record.spans)
    return [
        Lane(stage, replica, tuple(sorted(spans[replica, stage], key=lambda bar: (bar.start_s, bar.end_s))))
        for replica, stage in sorted(spans)
    ]


def _one_after_another(bars: Sequence[TimedAction]) -> list[TimedAction]:
    """The bars of stages that take turns: each continues with its mini-batch until it has to wait.

    Args:
        bars: as simulated with a processor for each stage, stage by stage.
    """
    turns: list[list[TimedAction]] = []
    for bar in bars:
        before = turns[-1][-1] if turns else None
        continues = (
            before is not None
            and (before.stage, parse(before.action).batch) == (bar.stage, parse(bar.action).batch)
            and bar.start_s - before.end_s < 1e-9
            and parse(bar.action).kind != "W"
        )
        if continues:
            turns[-1].append(bar)
        else:
            turns.append([bar])
    turns.sort(key=lambda turn: turn[0].start_s)
    at = 0.0
    moved = []
    for bar in chain.from_iterable(turns):
        moved.append(bar._replace(start_s=at, end_s=at + (bar.end_s - bar.start_s)))  # 0 s stay 0 s
        at = moved[-1].end_s
    return moved


def _with_data(plan: Plan, bars: Iterable[TimedAction]) -> Iterable[TimedAction]:
    """The bars, the first forward of each mini-batch divided: in a plan it includes reading the mini-batch."""
    speed = plan.stage_speed[0] if plan.stage_speed else 1.0
    forward_s = sum(component.forward_s for component in plan.costs.components[: plan.partition[0]])
    first_s = plan.costs.data_s + forward_s / speed
    share = plan.costs.data_s / first_s if first_s > 0 else 0.0
    for bar in bars:
        action = parse(bar.action)
        if action.kind == "F" and action.stage == 0 and share > 0:
            read_s = bar.start_s + share * (bar.end_s - bar.start_s)
            yield bar._replace(action=f"{DATA} {action.batch}", end_s=read_s)
            bar = bar._replace(start_s=read_s)
        yield bar


def _renumbered(lane: Lane, later: int) -> Lane:
    """The lane with the number of each mini-batch raised by `later`."""
    bars = []
    for bar in lane.bars:
        action, batch = action_of(bar), batch_of(bar)
        if action is not None:
            bar = bar._replace(action=str(action._replace(batch=action.batch + later)))
        elif batch is not None:
            bar = bar._replace(action=f"{DATA} {batch + later}")
        bars.append(bar)
    return replace(lane, bars=tuple(bars))
