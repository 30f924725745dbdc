"""The part of the page that draws the schedule, as predicted and as measured, on one scale of time."""

from __future__ import annotations

from collections.abc import Sequence

from alray.plan.timeline import TimedAction
from alray.report.folder import RunFolder
from alray.report.schedule_chart import chart_svg
from alray.report.slices import (
    Lane,
    action_of,
    measured_steady,
    predicted_lanes,
    traced_batches,
    window,
)

NUM_DRAWN = 6  # mini-batches of the drawing: more would be too narrow to read


def schedule(run: RunFolder) -> str:
    """The same few mini-batches twice: as the plan predicts them and as the stages' clocks saw them."""
    lanes = [lane for lane in measured_steady(run.kept, run.plan) if lane.replica == 0]
    traced = traced_batches(lanes, NUM_DRAWN)
    batches = traced or range(min(NUM_DRAWN, run.plan.total_steps or NUM_DRAWN))
    predicted = _bars(window(_predicted_around(run, batches), batches))
    measured = _bars(window(lanes, batches)) if traced else []
    if not predicted:
        return '<h2>Schedule</h2><p class="none">By the costs of the plan no action takes any time.</p>'
    notes = [f"Mini-batches {batches.start:,} to {batches.stop - 1:,}, counted from 0."]
    if not measured:
        notes.append("None were traced, so that only the prediction is drawn.")
    if run.plan.replicas > 1:
        notes.append("Replica 0.")
    notes.append("timeline.json, beside this page, holds all that was traced; Perfetto opens it.")
    return (
        f'<h2>Schedule, predicted and measured</h2><div class="wide">{chart_svg(predicted, measured)}</div>'
        f'<p class="note">{" ".join(notes)}</p>'
    )


def _predicted_around(run: RunFolder, batches: range) -> list[Lane]:
    """The prediction of these mini-batches and of their neighbours on other stages, for the edges of the window."""
    first = max(0, batches.start - run.plan.stages)
    return predicted_lanes(run.plan, first, batches.stop + run.plan.stages - first)


def _bars(lanes: Sequence[Lane]) -> list[TimedAction]:
    """The actions to draw; what is no action is left to show as the empty track."""
    return [bar for lane in lanes for bar in lane.bars if bar.end_s > bar.start_s and action_of(bar)]
