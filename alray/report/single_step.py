"""The single step: what one mini-batch spends on forward, backward, update and communication, predicted and measured.

The thesis's analysis of the training process (T.-H. Lin, 2023) as a value, so that the rows of several runs can stand
in one table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from alray.plan.plan import Plan
from alray.plan.timeline import TimedAction
from alray.records import Record, StageRecord
from alray.report.attempts import split_attempts
from alray.report.predicted import steady_timeline
from alray.schedules.actions import ActionKind, parse

_PART: dict[ActionKind, str] = {
    "F": "forward_s",
    "L": "backward_s",
    "B": "backward_s",
    "I": "backward_s",
    "G": "backward_s",
    "U": "update_s",
    "S": "send_wait_s",
    "R": "receive_wait_s",
    "W": "receive_wait_s",
}


@dataclass(frozen=True)
class Parts:
    """Seconds of one mini-batch on one stage, or on the mean stage. They add up to the time of the step.

    Sending and receiving are counted as waiting, also where the stage itself packs and unpacks. `idle_s` is the rest:
    measured, what lies between actions; predicted, what the other stages take of processors that all share.
    """

    data_s: float = 0.0
    forward_s: float = 0.0
    backward_s: float = 0.0
    update_s: float = 0.0
    send_wait_s: float = 0.0
    receive_wait_s: float = 0.0
    idle_s: float = 0.0

    @property
    def communication_s(self) -> float:
        """All that is no computing of the stage's own: both waits and the idle rest."""
        return self.send_wait_s + self.receive_wait_s + self.idle_s

    @property
    def step_s(self) -> float:
        """All parts together."""
        return self.data_s + self.forward_s + self.backward_s + self.update_s + self.communication_s


@dataclass(frozen=True)
class Row:
    """One stage, or the whole step where `stage` is None: the mean over the stages."""

    stage: int | None
    predicted: Parts
    measured: Parts | None  # None where no mini-batch after warm-up was measured

    @property
    def label(self) -> str:
        return "step" if self.stage is None else f"stage {self.stage}"


@dataclass(frozen=True)
class SingleStep:
    """The table of one run: a row for each stage, then that of the step."""

    method: str
    schedule: str
    rows: tuple[Row, ...]

    @property
    def step(self) -> Row:
        """The row of the step, which is what schedules are compared by."""
        return self.rows[-1]

    def as_json(self) -> dict[str, Any]:
        """Keys as in `Parts`, with `communication_s` and `step_s` beside them."""
        return {
            "method": self.method,
            "schedule": self.schedule,
            "rows": [
                {"stage": row.stage, "predicted": _as_json(row.predicted), "measured": _as_json(row.measured)}
                for row in self.rows
            ],
        }


def single_step(kept: Sequence[Record], plan: Plan) -> SingleStep:
    """The table of a run from its records (those that no failure made void) and the plan it last ran with.

    Measured are means over the mini-batches after warm-up, over all replicas, of the attempts that ran with this plan.
    """
    timed = [
        record
        for attempt in split_attempts(kept)
        if attempt.ran(plan)
        for record in attempt.stage_records
        if not record.warm_up
    ]
    predicted = predicted_parts(plan)
    measured = [_measured([record for record in timed if record.stage == stage]) for stage in range(plan.stages)]
    known = [parts for parts in measured if parts is not None]
    whole = _mean(known) if len(known) == plan.stages else None
    rows = [Row(stage, predicted[stage], measured[stage]) for stage in range(plan.stages)]
    return SingleStep(plan.method, plan.schedule, (*rows, Row(None, _mean(predicted), whole)))


def predicted_parts(plan: Plan) -> list[Parts]:
    """Of each stage, simulated: means over the mini-batches in steady state."""
    timeline, steady = steady_timeline(plan)
    bars: list[list[TimedAction]] = [[] for _ in range(plan.stages)]
    for bar in timeline.bars():
        bars[bar.stage].append(bar)
    data_s = plan.costs.data_s / (plan.stage_speed[0] if plan.stage_speed else 1.0)
    parts = []
    for stage, own in enumerate(bars):
        found = _mean_of(own, steady)
        if stage == 0:  # whose first forward the plan has begin with getting the mini-batch ready
            found = replace(found, data_s=data_s, forward_s=max(0.0, found.forward_s - data_s))
        parts.append(replace(found, idle_s=max(0.0, plan.predicted_step_time_s - found.step_s)))
    return parts


def _mean_of(bars: Sequence[TimedAction], steady: range) -> Parts:
    """What one stage's actions of these mini-batches take each, with the gap before an action as the wait for it."""
    seconds = dict.fromkeys((part.name for part in fields(Parts)), 0.0)
    at_s = 0.0
    for bar in bars:
        action = parse(bar.action)
        if action.batch in steady:
            seconds[_PART[action.kind]] += bar.end_s - bar.start_s
            seconds["send_wait_s" if action.kind == "S" else "receive_wait_s"] += max(0.0, bar.start_s - at_s)
        at_s = max(at_s, bar.end_s)
    return Parts(**{name: value / len(steady) for name, value in seconds.items()})


def _measured(records: Sequence[StageRecord]) -> Parts | None:
    """The mean mini-batch of one stage's records; None where they hold none."""
    num_steps = sum(record.steps for record in records)
    if num_steps == 0:
        return None
    return Parts(
        **{part.name: sum(getattr(record, part.name) for record in records) / num_steps for part in fields(Parts)}
    )


def _mean(stages: Sequence[Parts]) -> Parts:
    return Parts(
        **{part.name: sum(getattr(stage, part.name) for stage in stages) / len(stages) for part in fields(Parts)}
    )


def _as_json(parts: Parts | None) -> dict[str, float] | None:
    if parts is None:
        return None
    return {**asdict(parts), "communication_s": parts.communication_s, "step_s": parts.step_s}
