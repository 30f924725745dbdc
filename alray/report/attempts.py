"""Attempts: a run that fails or is resumed starts anew, and the records of each start are one attempt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from alray.core.run_folder.records import (
    CheckpointRecord,
    EngineName,
    EvaluationRecord,
    EventRecord,
    PlanRecord,
    Record,
    StageRecord,
    StepRecord,
)
from alray.planning.prediction.plan import Plan

# Two plans that agree in these keys predict the same timeline. Costs may differ: each attempt may measure them again.
_SAME_TIMELINE = (
    "method",
    "schedule",
    "stages",
    "replicas",
    "partition",
    "in_flight",
    "cores",
    "micro_batches",
    "virtual_stages",
    "stage_speed",
    "in_turns",
    "recomputes",
    "clips_together",
)
# Of the costs: what a resume may change only where it may become another run.
_SAME_WORK = ("device", "batch_size", "precision")


class StepTime(NamedTuple):
    """The time from one completed mini-batch to the next, by the clock of a last stage."""

    number: int  # of the mini-batch, counted from 1
    seconds: float
    replica: int
    after_cut: bool


@dataclass(frozen=True)
class Timed:
    """Times of mini-batches, from which every figure of time is computed.

    A pipeline that was cut runs empty, and fills again. So the time of a mini-batch is known where the mini-batch
    before it was completed without a cut between the two. The bubble and the utilisation are made of these times and of
    what a stage computes in the same mini-batches: the pause of one stage, during which others train, is in neither.
    """

    records: tuple[StageRecord, ...] = ()
    """Without mini-batches after cuts, where others are left."""
    step_times: tuple[StepTime, ...] = ()
    """Those that count."""
    of_the_same: bool = True
    """Whether the records are of the mini-batches whose times count. Only then is computing at most these."""

    def __bool__(self) -> bool:
        return bool(self.records)

    def of_stage(self, stage: int) -> list[StageRecord]:
        return [record for record in self.records if record.stage == stage]

    @property
    def step_times_s(self) -> list[float]:
        return [step.seconds for step in self.step_times]

    @property
    def step_s(self) -> float | None:
        """The mean step time; None where none was measured."""
        return fmean(self.step_times_s) if self.step_times else None

    def computing_s(self, stage: int) -> float | None:
        """What a stage computes for a mini-batch, as a mean over mini-batches and replicas."""
        own = self.of_stage(stage)
        num_steps = sum(record.steps for record in own)
        return sum(record.compute_s for record in own) / num_steps if num_steps else None

    def utilisation(self, stage: int) -> float | None:
        """The share of the step time in which a stage computes, in 0..1; None where it was not measured."""
        computing_s, step_s = self.computing_s(stage), self.step_s
        return None if computing_s is None or not step_s else computing_s / step_s

    def bubble(self, stages: int) -> float | None:
        """The share of the time of all stages in which they do not compute, in 0..1."""
        shares = [self.utilisation(stage) for stage in range(stages)]
        known = [share for share in shares if share is not None]
        return 1.0 - fmean(known) if len(known) == stages else None


@dataclass(frozen=True)
class Attempt:
    """The records of one attempt, in the order in which they were written.

    The counters of a stage (`StageRecord.bytes_sent`) restart with each attempt. Its clock may restart too.
    """

    plan: dict[str, Any] | None  # the plan of this attempt, as in `plan.json`; None if no plan was recorded
    records: tuple[Record, ...]
    engine: EngineName | None = None

    @property
    def stage_records(self) -> list[StageRecord]:
        return [record for record in self.records if isinstance(record, StageRecord)]

    @property
    def timed(self) -> Timed:
        """Its times after warm-up."""
        return self._timed([record for record in self.stage_records if not record.warm_up])

    @property
    def whole(self) -> Timed:
        """Its times, warm-up included."""
        return self._timed(self.stage_records)

    def _timed(self, records: Sequence[StageRecord]) -> Timed:
        last = max((record.stage for record in self.stage_records), default=0)
        steps = [step for record in records if record.stage == last for step in _steps_of(record)]
        counted = [step for step in steps if not step.after_cut]
        # Where every mini-batch comes after a cut, each goes through the empty pipeline. Replicas but the first wait
        # meanwhile for the evaluation, which replica 0 makes.
        if not counted:
            lone = [step for step in steps if step.replica == 0 and step.number > self.records[0].step + 1]
            return Timed(tuple(records), tuple(lone), all(record.replica == 0 for record in records))
        return Timed(tuple(record.between_cuts for record in records), tuple(counted))

    def ran(self, plan: Plan) -> bool:
        """Whether this attempt ran with `plan`, so that its times can be compared with the plan's prediction."""
        if self.plan is None:
            return True
        own, other = self.plan, plan.as_json()
        return (
            all(_value(own[key]) == _value(other[key]) for key in _SAME_TIMELINE)
            and _links(own) == _links(other)
            and all(own["costs"][key] in ("", other["costs"][key]) for key in _SAME_WORK)
            and [edge["bytes_per_step"] for edge in own["edges"]] == [edge.bytes_per_step for edge in plan.edges]
        )


def of_final_weights(effective_records: Sequence[Record]) -> Sequence[Record]:
    """The records without the work that an interrupted or failed run could not save: a resume does it again."""
    events = [record for record in effective_records if isinstance(record, EventRecord) and record.event != "warning"]
    if not events or events[-1].event not in ("interrupted", "failed"):
        return effective_records
    begun = [event for event in events if event.event in ("started", "resumed")]
    saved = [*begun, *(record for record in effective_records if isinstance(record, CheckpointRecord))]
    until = max((record.step for record in saved), default=0)
    return [
        record for record in effective_records if isinstance(record, EventRecord | PlanRecord) or record.step <= until
    ]


def split_attempts(records: Sequence[Record]) -> list[Attempt]:
    """The attempts that did any work, in order.

    Each attempt begins with an event `started` or `resumed`. Its plan record may stand before or after that event.
    """
    found: list[Attempt] = []
    current: list[Record] = []
    plan: dict[str, Any] | None = None
    engine: EngineName | None = None

    def close() -> None:
        if any(isinstance(record, StepRecord | StageRecord | EvaluationRecord) for record in current):
            found.append(Attempt(plan, tuple(current), engine))
        current.clear()

    for record in records:
        if isinstance(record, EventRecord) and record.event in ("started", "resumed"):
            close()
        if isinstance(record, PlanRecord):
            close()
            plan, engine = record.plan, record.engine
        current.append(record)
    close()
    return found


def timed_with(attempts: Sequence[Attempt], plan: Plan) -> Timed:
    """The times that figures are computed from: after warm-up, from attempts that ran with `plan`.

    Args:
        attempts: those of the records without lost work, see `alray.core.run_folder.records.effective`.
    """
    found = [attempt.timed for attempt in attempts if attempt.ran(plan)]
    return Timed(
        tuple(record for each in found for record in each.records),
        tuple(step for each in found for step in each.step_times),
        all(each.of_the_same for each in found),
    )


def _steps_of(record: StageRecord) -> Iterator[StepTime]:
    """The times of a record of a last stage."""
    first = record.step - len(record.step_times_s) + 1
    for number, seconds in enumerate(record.step_times_s, first):
        yield StepTime(number, seconds, record.replica, number in record.after_cut)


def _value(value: Any) -> Any:
    """A value of a plan, whether or not it was written as JSON and read back."""
    return list(value) if isinstance(value, tuple) else value


def _links(plan: dict[str, Any]) -> list[Any]:
    """What a plan says of the links between its stages, as far as it stays the same. Links between nodes are measured
    at each start; those that `pipeline.links` gives are within one node."""
    measured = len(set(plan["nodes"])) > 1
    keys = ("latency_s", "up_s_per_byte", "down_s_per_byte")
    return [None if link is None else () if measured else tuple(link[key] for key in keys) for link in plan["links"]]
