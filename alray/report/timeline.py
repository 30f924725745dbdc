"""`timeline.json`: what each stage did when, predicted and measured, as Perfetto and Chrome open it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from alray.report.folder import RunFolder
from alray.report.slices import Lane, action_of, category, measured_attempts, predicted_lanes

NUM_PREDICTED = 32  # mini-batches of the prediction, from the first


def write_timeline(run: RunFolder, path: Path) -> Path:
    """Write the trace to `path` and return it.

    Process 1 is the prediction, from the first mini-batch, drawn under what was measured: one process for each attempt
    in which mini-batches were traced, each with one thread per stage and replica. Each process starts at 0; `otherData`
    holds the seconds since the start of the run at which a measured one began.
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
    temporary = path.with_name(path.name + ".partial")
    temporary.write_text(json.dumps(trace, separators=(",", ":")) + "\n", encoding="utf-8")
    temporary.replace(path)
    return path


def _process(pid: int, name: str, lanes: Sequence[Lane], *, start_s: float, place: int) -> list[dict[str, Any]]:
    """Events of one process; place: where it is drawn among the others, 1 at the top."""
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
        events += _slices(pid, tid, lane, start_s)
    return events


def _slices(pid: int, tid: int, lane: Lane, start_s: float) -> Iterable[dict[str, Any]]:
    """Complete events; times are microseconds."""
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
