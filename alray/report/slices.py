"""Slices of time of the stages, as the plan predicts them and as the stages' clocks saw them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from alray.errors import PlanError
from alray.plan.plan import Plan
from alray.plan.timeline import TimedAction
from alray.records import Record
from alray.report.attempts import split_attempts
from alray.report.predicted import predicted_bars
from alray.schedules.actions import COMPUTE, Action, parse

SEND_WAIT, RECEIVE_WAIT = "send_wait", "receive_wait"

_TRAINING = ("F", "L", "B", "I", "G", "U")  # kinds of actions that train
_STEADY = 64  # mini-batches after which a pipeline without pauses is in its steady state


@dataclass(frozen=True)
class Lane:
    """The slices of one stage of one replica, in order of their starts; one clock, in seconds, for all lanes.

    `TimedAction.action` is an action's printed form (`2F0`), `send_wait` or `receive_wait`.
    """

    stage: int
    replica: int
    bars: tuple[TimedAction, ...]


def measured_attempts(records: Sequence[Record]) -> list[list[Lane]]:
    """For each attempt in which mini-batches were traced, its lanes, by replica and stage."""
    return [lanes for attempt in split_attempts(records) if (lanes := _lanes(attempt.records))]


def measured_steady(records: Sequence[Record], plan: Plan) -> list[Lane]:
    """The lanes to set beside the prediction: of the last traced attempt that ran with this plan.

    Mini-batches after warm-up where such were traced, else all that were; empty where none was.
    """
    for attempt in reversed(split_attempts(records)):
        if attempt.ran(plan):
            steady = _lanes(record for record in attempt.stage_records if not record.warm_up)
            if lanes := steady or _lanes(attempt.records):
                return lanes
    return []


def predicted_lanes(plan: Plan, first_batch: int, num_batches: int) -> list[Lane]:
    """The predicted slices of mini-batches `first_batch` to `first_batch + num_batches - 1`, waits included.

    Far into the run a pipeline repeats itself: batches beyond the steady state are drawn as an earlier one's
    prediction, under their own numbers.
    """
    simulated = min(first_batch, _STEADY + 2 * plan.stages)
    bars = predicted_bars(plan, simulated, num_batches)
    lanes = []
    for stage in range(plan.stages):
        own = [bar for bar in bars if bar.stage == stage]
        start = 0.0 if simulated == 0 else own[0].start_s
        lanes.append(Lane(stage, 0, tuple(_with_waits(own, start, renumber=first_batch - simulated))))
    return lanes


def traced_batches(lanes: Iterable[Lane], limit: int) -> range:
    """The first neighbouring mini-batches that every lane traced, at most `limit`; may be empty."""
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
    """What the lanes do from the first training action of these mini-batches to the last, from time 0."""
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
    """The action a bar shows; None for a wait, and for what a stage traced under a name of its own."""
    try:
        return parse(bar.action)
    except PlanError:
        return None


def category(bar: TimedAction) -> str:
    """`compute`, `message`, or the name of a wait or of anything else a stage traced."""
    action = action_of(bar)
    if action is None:
        return bar.action
    return "compute" if action.kind in COMPUTE else "message"


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
    """The bars of one stage with the gaps between them named by what the stage waits for."""
    at = start_s
    for bar in bars:
        action = parse(bar.action)
        if bar.start_s - at > 1e-9:
            # At a barrier a stage waits for word from the others: records count that as receive wait too.
            yield TimedAction(bar.stage, SEND_WAIT if action.kind == "S" else RECEIVE_WAIT, at, bar.start_s)
        if bar.end_s > bar.start_s:
            yield bar._replace(action=str(replace(action, batch=action.batch + renumber)))
        at = max(at, bar.end_s)
