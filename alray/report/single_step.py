"""The single step: the time of one mini-batch divided into forward, backward, update and communication.

The table has a predicted and a measured row for each stage. It follows the analysis of the training process in the
thesis of T.-H. Lin (2023).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from alray.core.run_folder.records import Record, StageRecord
from alray.planning.prediction.plan import Plan
from alray.planning.prediction.timeline import TimedAction
from alray.planning.schedules.actions import ActionKind, parse
from alray.report.attempts import Timed, split_attempts, timed_with
from alray.report.definitions import definition
from alray.report.text import milliseconds
from alray.report.timeline import steady_timeline

_PART: dict[ActionKind, str] = {
    "F": "forward_s",
    "C": "forward_s",
    "L": "backward_s",
    "B": "backward_s",
    "I": "backward_s",
    "G": "backward_s",
    "U": "update_s",
    "S": "send_wait_s",
    "R": "receive_wait_s",
    "W": "receive_wait_s",
}


COLUMNS = {
    "data": definition(StageRecord, "data_s"),
    "forward": definition(StageRecord, "forward_s"),
    "backward": definition(StageRecord, "backward_s"),
    "update": definition(StageRecord, "update_s"),
    "communication": "The time in which the stage does not compute, idle time included: the sum of send wait, receive "
    "wait and idle.",
    "send wait": definition(StageRecord, "send_wait_s"),
    "receive wait": definition(StageRecord, "receive_wait_s"),
    "idle": f"{definition(StageRecord, 'idle_s')} In this table also the time by which a stage begins an "
    "evaluation earlier than the last stage. Predicted: the time in which other stages use the processors.",
    "step": "The mean time from one mini-batch to the next, by the last stage (`step_time_s` is the median).",
}
"""Headings of the columns that `cells` fills, and what they mean."""
HEAD = tuple(COLUMNS)


@dataclass(frozen=True)
class StepParts:
    """Seconds that one mini-batch takes on one stage, or on the mean of the stages. They add up to the step time.

    `COLUMNS` has their definitions.
    """

    data_s: float = 0.0
    forward_s: float = 0.0
    backward_s: float = 0.0
    update_s: float = 0.0
    send_wait_s: float = 0.0
    receive_wait_s: float = 0.0
    idle_s: float = 0.0

    @property
    def not_computing_s(self) -> float:
        """The time in which the stage does not compute: both waits and the idle rest."""
        return self.send_wait_s + self.receive_wait_s + self.idle_s

    @property
    def step_s(self) -> float:
        """The sum of all parts."""
        return self.data_s + self.forward_s + self.backward_s + self.update_s + self.not_computing_s


@dataclass(frozen=True)
class StepRow:
    """One stage; with `stage` None the whole step, which is the mean over the stages."""

    stage: int | None
    predicted: StepParts
    measured: StepParts | None  # None if no mini-batch after warm-up was measured

    @property
    def label(self) -> str:
        return "step" if self.stage is None else f"stage {self.stage}"


@dataclass(frozen=True)
class SingleStep:
    """The table of one run: a row for each stage, then the row of the step."""

    plan: Plan
    """The plan of the prediction, with which the measured mini-batches were trained."""
    rows: tuple[StepRow, ...]

    @property
    def step(self) -> StepRow:
        """The row of the step, by which schedules are compared."""
        return self.rows[-1]

    def as_json(self) -> dict[str, Any]:
        """The rows with the keys of `StepParts`, `communication_s` (the time without computing) and `step_s`."""
        return {
            "method": self.plan.method,
            "schedule": self.plan.schedule_name,
            "partition": list(self.plan.partition),
            "rows": [
                {"stage": row.stage, "predicted": _as_json(row.predicted), "measured": _as_json(row.measured)}
                for row in self.rows
            ],
        }


def single_step(effective_records: Sequence[Record], plan: Plan) -> SingleStep:
    """The table of a run.

    Measured values are means over the mini-batches after warm-up and over all replicas, from the attempts that ran with
    this plan. Predicted ones are those of the plan.

    Args:
        effective_records: its records without lost work.
        plan: the plan with which it last ran.
    """
    timed = timed_with(split_attempts(effective_records), plan)
    predicted = predicted_parts(plan)
    measured = measured_parts(timed, plan.stages)
    known = [parts for parts in measured if parts is not None]
    whole = _mean(known) if len(known) == plan.stages else None
    rows = [StepRow(stage, predicted[stage], measured[stage]) for stage in range(plan.stages)]
    return SingleStep(plan, (*rows, StepRow(None, _mean(predicted), whole)))


def cells(parts: StepParts | None) -> list[str]:
    """The parts as milliseconds, in the columns of `HEAD`; dashes if nothing was measured."""
    if parts is None:
        return [milliseconds(None)] * len(HEAD)
    values = (
        *(parts.data_s, parts.forward_s, parts.backward_s, parts.update_s, parts.not_computing_s),
        *(parts.send_wait_s, parts.receive_wait_s, parts.idle_s, parts.step_s),
    )
    return [milliseconds(value) for value in values]


def rows_of(steps: Iterable[tuple[str, StepRow]]) -> tuple[tuple[str, ...], ...]:
    """Two rows of a table for each label and row: the predicted and the measured values."""
    return tuple(
        (label, source, *cells(parts))
        for label, row in steps
        for source, parts in (("predicted", row.predicted), ("measured", row.measured))
    )


def predicted_parts(plan: Plan) -> list[StepParts]:
    """The simulated parts of each stage, as means over the mini-batches in steady state."""
    timeline, steady = steady_timeline(plan)
    bars: list[list[TimedAction]] = [[] for _ in range(plan.stages)]
    for bar in timeline.bars():
        bars[bar.stage].append(bar)
    data_s = plan.costs.data_s
    parts = []
    for stage, of_stage in enumerate(bars):
        found = _mean_of(of_stage, steady)
        if stage == 0:  # in the plan, its forward includes getting the mini-batch ready
            found = replace(found, data_s=data_s, forward_s=max(0.0, found.forward_s - data_s))
        parts.append(replace(found, idle_s=max(0.0, plan.predicted_step_time_s - found.step_s)))
    return parts


def _mean_of(bars: Sequence[TimedAction], steady: range) -> StepParts:
    """The mean parts of the mini-batches in `steady` on one stage; a gap before an action counts as waiting for it."""
    seconds = dict.fromkeys((part.name for part in fields(StepParts)), 0.0)
    at_s = 0.0
    for bar in bars:
        action = parse(bar.action)
        if action.batch in steady:
            seconds[_PART[action.kind]] += bar.end_s - bar.start_s
            seconds["send_wait_s" if action.kind == "S" else "receive_wait_s"] += max(0.0, bar.start_s - at_s)
        at_s = max(at_s, bar.end_s)
    return StepParts(**{name: value / len(steady) for name, value in seconds.items()})


def measured_parts(timed: Timed, stages: int) -> list[StepParts | None]:
    """The mean mini-batch of each stage; None for a stage whose records hold no mini-batch."""
    return [_measured(timed.of_stage(stage), timed.step_s) for stage in range(stages)]


def _measured(records: Sequence[StageRecord], step_s: float | None) -> StepParts | None:
    """The mean mini-batch of one stage, which takes as long as the step. Around cuts, waits are not measured."""
    num_steps = sum(record.steps for record in records)
    if num_steps == 0 or step_s is None:
        return None
    between = num_steps - sum(len(record.after_cut) for record in records)

    def mean_s(part: str, of: int) -> float:
        return sum(getattr(record, part) for record in records) / of if of else 0.0

    found = StepParts(
        data_s=mean_s("data_s", num_steps),
        forward_s=mean_s("forward_s", num_steps),
        backward_s=mean_s("backward_s", num_steps),
        update_s=mean_s("update_s", num_steps),
        send_wait_s=mean_s("send_wait_s", between),
        receive_wait_s=mean_s("receive_wait_s", between),
    )
    return replace(found, idle_s=max(0.0, step_s - found.step_s))


def _mean(stages: Sequence[StepParts]) -> StepParts:
    return StepParts(
        **{part.name: sum(getattr(stage, part.name) for stage in stages) / len(stages) for part in fields(StepParts)}
    )


def _as_json(parts: StepParts | None) -> dict[str, float] | None:
    if parts is None:
        return None
    return {**asdict(parts), "communication_s": parts.not_computing_s, "step_s": parts.step_s}
