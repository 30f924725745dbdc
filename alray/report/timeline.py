"""What each stage did at which time, as the plan predicts it and as the stages' clocks measured it.

`write_timeline` writes both into `timeline.json`, which Perfetto and Chrome open.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from alray.errors import PlanError
from alray.plan.plan import Plan
from alray.plan.predict import predicted_timeline
from alray.plan.timeline import TimedAction, Timeline
from alray.records import Record, replace_file
from alray.report.attempts import split_attempts
from alray.report.folder import RunFolder
from alray.schedules.actions import COMPUTE, Action, parse

SEND_WAIT, RECEIVE_WAIT = "send_wait", "receive_wait"
NUM_PREDICTED = 32  # mini-batches of the prediction in `timeline.json`, from the first one

_TRAINING = ("F", "L", "B", "I", "G", "U")  # kinds of actions that train
_STEADY = 64  # after this many mini-batches a pipeline without pauses is in its steady state


@dataclass(frozen=True)
class Lane:
    """What one stage of one replica did, in order of start times. All lanes share one clock, in seconds.

    `TimedAction.action` is the printed form of an action (`2F0`), `send_wait` or `receive_wait`.
    """

    stage: int
    replica: int
    bars: tuple[TimedAction, ...]


def measured_attempts(records: Sequence[Record]) -> list[list[Lane]]:
    """The lanes of each attempt in which mini-batches were traced, ordered by replica and stage."""
    return [lanes for attempt in split_attempts(records) if (lanes := _lanes(attempt.records))]


def measured_steady(records: Sequence[Record], plan: Plan) -> list[Lane]:
    """The lanes to compare with the prediction: from the last traced attempt that ran with `plan`.

    They hold the traced mini-batches after warm-up, or, if there are none, all traced mini-batches. The list is empty
    if nothing was traced.
    """
    for attempt in reversed(split_attempts(records)):
        if attempt.ran(plan):
            steady = _lanes(record for record in attempt.stage_records if not record.warm_up)
            if lanes := steady or _lanes(attempt.records):
                return lanes
    return []


def predicted_bars(plan: Plan, first_batch: int, num_batches: int) -> list[TimedAction]:
    """The predicted actions of `num_batches` mini-batches from `first_batch` on, in a run without evaluations.

    The simulation gives each stage its own processor. If the stages share fewer processors, all times are stretched
    by the same factor, so that they match the plan's predicted step time.
    """
    bars = _timeline(plan, first_batch + num_batches).bars(first_batch, first_batch + num_batches)
    steady_s = _timeline(plan, None).step_time_s
    if plan.predicted_step_time_s <= 1.001 * steady_s:  # a smaller difference may be rounding
        return bars
    slowdown = plan.predicted_step_time_s / steady_s
    return [bar._replace(start_s=bar.start_s * slowdown, end_s=bar.end_s * slowdown) for bar in bars]


def predicted_lanes(plan: Plan, first_batch: int, num_batches: int) -> list[Lane]:
    """The predicted lanes of `num_batches` mini-batches from `first_batch` on, waits included.

    In its steady state a pipeline repeats itself. A mini-batch far into the run is therefore drawn from the prediction
    of an earlier one, under its own number.
    """
    simulated = min(first_batch, _STEADY + 2 * plan.stages)
    bars = predicted_bars(plan, simulated, num_batches)
    lanes = []
    for stage in range(plan.stages):
        own = [bar for bar in bars if bar.stage == stage]
        start = 0.0 if simulated == 0 else own[0].start_s
        lanes.append(Lane(stage, 0, tuple(_with_waits(own, start, renumber=first_batch - simulated))))
    return lanes


def steady_timeline(plan: Plan) -> tuple[Timeline, range]:
    """The simulated timeline of a plan, each stage on its own processor, and its mini-batches in steady state.

    The predicted step time is the mean over these mini-batches.
    """
    timeline = _timeline(plan, None)
    num_batches = len(timeline.completed_s)
    return timeline, range((num_batches - 1) // 2 + 1, num_batches) if num_batches > 1 else range(1)


def traced_batches(lanes: Iterable[Lane], limit: int) -> range:
    """The first consecutive mini-batches that every lane traced, at most `limit`; may be empty."""
    num_lanes = 0
    lanes_of: dict[int, int] = {}
    for lane in lanes:
        num_lanes += 1
        for batch in {action.batch for bar in lane.bars if (action := action_of(bar)) and action.kind in _TRAINING}:
            lanes_of[batch] = lanes_of.get(batch, 0) + 1
    whole = sorted(batch for batch, count in lanes_of.items() if count == num_lanes)
    if not whole:
        return range(0)
    end = whole[0]
    while end in lanes_of and lanes_of[end] == num_lanes and end - whole[0] < limit:
        end += 1
    return range(whole[0], end)


def window(lanes: Sequence[Lane], batches: range) -> list[Lane]:
    """The lanes cut to the time from the first to the last training action of `batches`; the window begins at 0 s."""
    inside = [
        bar
        for lane in lanes
        for bar in lane.bars
        if (action := action_of(bar)) and action.kind in _TRAINING and action.batch in batches
    ]
    start = min(bar.start_s for bar in inside)
    end = max(bar.end_s for bar in inside)
    return [
        replace(
            lane,
            bars=tuple(
                bar._replace(start_s=max(bar.start_s, start) - start, end_s=min(bar.end_s, end) - start)
                for bar in lane.bars
                if bar.start_s < end and bar.end_s > start
            ),
        )
        for lane in lanes
    ]


def action_of(bar: TimedAction) -> Action | None:
    """The action of a bar; None for a wait and for anything else that a stage traced under its own name."""
    try:
        return parse(bar.action)
    except PlanError:
        return None


def category(bar: TimedAction) -> str:
    """`compute`, `message`, or the name of a wait or of anything else that a stage traced."""
    action = action_of(bar)
    if action is None:
        return bar.action
    return "compute" if action.kind in COMPUTE else "message"


def write_timeline(run: RunFolder, path: Path) -> Path:
    """Write the trace of a run to `path` and return the path.

    Process 1 is the prediction of the first mini-batches. It is drawn below the measured processes: one for each
    attempt in which mini-batches were traced. A process has one thread for each stage and replica. Each process starts
    at time 0; `otherData` holds the seconds since the start of the run at which each measured process began.
    """
    attempts = measured_attempts(run.records)
    num_batches = min(NUM_PREDICTED, run.plan.total_steps or NUM_PREDICTED)
    last = 1 + len(attempts)
    events = _process(1, "predicted", predicted_lanes(run.plan, 0, num_batches), start_s=0.0, place=last)
    began = {}
    for number, lanes in enumerate(attempts, start=1):
        name = "measured" if len(attempts) == 1 else f"measured, attempt {number}"
        began[name] = min(lane.bars[0].start_s for lane in lanes)
        events += _process(1 + number, name, lanes, start_s=began[name], place=number)
    trace = {
        "displayTimeUnit": "ms",
        "otherData": {"name": run.name, "schedule": run.plan.schedule, "began_s": began},
        "traceEvents": events,
    }
    replace_file(path, json.dumps(trace, separators=(",", ":")) + "\n")
    return path


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


def _with_waits(bars: Sequence[TimedAction], start_s: float, *, renumber: int) -> Iterable[TimedAction]:
    """The bars of one stage, and a wait in each gap between them, named after what the stage waits for."""
    at = start_s
    for bar in bars:
        action = parse(bar.action)
        if bar.start_s - at > 1e-9:
            # At a barrier a stage waits for messages of the others. Records count that as receive wait too.
            yield TimedAction(bar.stage, SEND_WAIT if action.kind == "S" else RECEIVE_WAIT, at, bar.start_s)
        if bar.end_s > bar.start_s:
            yield bar._replace(action=str(replace(action, batch=action.batch + renumber)))
        at = max(at, bar.end_s)


def _process(pid: int, name: str, lanes: Sequence[Lane], *, start_s: float, place: int) -> list[dict[str, Any]]:
    """The events of one process. place: its position among the processes, 1 at the top."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}},
        {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": place}},
    ]
    several = any(lane.replica for lane in lanes)
    for tid, lane in enumerate(lanes):
        label = f"stage {lane.stage}" + (f", replica {lane.replica}" if several else "")
        thread = {"ph": "M", "pid": pid, "tid": tid}
        events.append({**thread, "name": "thread_name", "args": {"name": label}})
        events.append({**thread, "name": "thread_sort_index", "args": {"sort_index": tid}})
        events += _events(pid, tid, lane, start_s)
    return events


def _events(pid: int, tid: int, lane: Lane, start_s: float) -> Iterable[dict[str, Any]]:
    """The complete events of one thread; times are in microseconds."""
    for bar in lane.bars:
        event: dict[str, Any] = {
            "ph": "X",
            "name": bar.action,
            "cat": category(bar),
            "pid": pid,
            "tid": tid,
            "ts": round((bar.start_s - start_s) * 1e6, 3),
            "dur": round((bar.end_s - bar.start_s) * 1e6, 3),
        }
        if (action := action_of(bar)) is not None:
            event["args"] = {"mini_batch": action.batch}
        yield event
