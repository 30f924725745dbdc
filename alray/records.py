"""The records and the summary of a run: their types, and how they are written and read.

`records.jsonl` holds one JSON object on each line. Every table and chart is made from these records, never from logs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from alray.errors import CheckpointError

VERSION = 1

EngineName = Literal["ray", "ray_train", "inline"]
"""What executed the plan: alray's Ray actors, the workers of Ray Train with torch's DDP, or a single process."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings")

    v: int = VERSION
    time_s: float  # seconds since the run, or this attempt of it, was started
    step: int  # mini-batches completed when this was recorded
    epoch: float  # epochs completed
    samples: int  # samples seen, over all replicas


class StepRecord(_Record):
    """The losses of one mini-batch, per component (counted from 0) and loss name."""

    kind: Literal["step"] = "step"
    losses: dict[int, dict[str, float]]
    lr: float


class Span(BaseModel):
    """One action as the stage's own clock measured it, in seconds since the run was started."""

    model_config = ConfigDict(extra="forbid")

    action: str  # the printed form of an action, e.g. "2F0", or "send_wait" or "receive_wait"
    start_s: float
    end_s: float


class StageRecord(_Record):
    """How one stage spent its time during the `steps` mini-batches that end at `step`.

    compute_s + send_wait_s + receive_wait_s + idle_s is the wall time of these mini-batches, without evaluations and
    checkpoints.
    """

    kind: Literal["stage"] = "stage"
    stage: int
    replica: int
    steps: int
    warm_up: bool  # the first mini-batches after a start, and profiled ones; no figure uses them
    data_s: float = 0.0  # stage 0 only: the time to get mini-batches ready
    forward_s: float
    backward_s: float
    update_s: float
    compute_s: float  # the sum of the four above
    send_wait_s: float
    receive_wait_s: float
    idle_s: float
    evaluation_s: float
    step_times_s: list[float]  # from one completed mini-batch to the next, without pauses for evaluation
    bytes_sent: dict[str, int]  # by edge, since this attempt started
    share: int | None = None  # samples of a mini-batch that this replica takes from now on; None with one replica
    all_reduce_bytes: int = 0  # sent to the other replicas, since this attempt started
    all_reduce_s: float = 0.0  # duration of these all-reduces, hidden or waited for, since this attempt started
    peak_memory_bytes: int | None
    spans: list[Span] = Field(default_factory=list)  # the actions of the traced mini-batches


class DepthAccuracy(BaseModel):
    """Accuracy of the route of this depth, in 0..1 (depth 1 is the first component alone). null means not measured."""

    model_config = ConfigDict(extra="forbid")

    depth: int
    train: float | None = None
    validation: float | None = None
    test: float | None = None


class EvaluationRecord(_Record):
    """Accuracies after `step` mini-batches, in 0..1. Training accuracy is measured without augmentation."""

    kind: Literal["evaluation"] = "evaluation"
    train: float | None = None
    validation: float | None = None
    test: float | None = None
    per_depth: list[DepthAccuracy]
    duration_s: float


class CheckpointRecord(_Record):
    """A complete checkpoint: its manifest was written."""

    kind: Literal["checkpoint"] = "checkpoint"
    path: str  # relative to the run folder
    bytes: int
    duration_s: float


class EventRecord(_Record):
    """Something that happened to the run.

    `resumed` means that the run continued from `step`. Earlier records of the kinds step, stage, evaluation and
    checkpoint with a later step describe work that was lost and done again.
    """

    kind: Literal["event"] = "event"
    event: Literal["started", "resumed", "failure", "interrupted", "finished", "failed", "warning"]
    message: str
    stage: int | None = None
    replica: int | None = None


class PlanRecord(_Record):
    """The plan of an attempt; `plan.json` holds the latest plan."""

    kind: Literal["plan"] = "plan"
    plan: dict[str, Any]
    engine: EngineName | None = None  # what executed it


Record = Annotated[
    StepRecord | StageRecord | EvaluationRecord | CheckpointRecord | EventRecord | PlanRecord,
    Field(discriminator="kind"),
]
RECORD: TypeAdapter[Record] = TypeAdapter(Record)


class Best(BaseModel):
    """The evaluation with the best validation accuracy, the earliest of equals."""

    model_config = ConfigDict(extra="forbid")

    step: int
    validation: float | None
    test: float | None
    checkpoint: str | None = None  # in a summary: the checkpoint of these weights, relative to the run folder, if kept


class Accuracy(BaseModel):
    """Accuracy of the whole network, in 0..1."""

    model_config = ConfigDict(extra="forbid")

    train: float | None = None
    validation: float | None = None
    test: float | None = None


class Standing(BaseModel):
    """What the evaluations of a run have come to so far. Every checkpoint holds it, so that a resumed run goes on from
    it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    step: int = 0  # mini-batches before the last evaluation
    last: Accuracy = Accuracy()
    best: Best | None = None  # chosen on validation: the test set chooses nothing
    since_best: int = 0  # evaluations after the best one

    def after(self, evaluation: EvaluationRecord) -> Standing:
        """The standing after one more evaluation. A second one after the same mini-batch changes nothing."""
        if evaluation.step == self.step:
            return self
        train, validation, test = evaluation.train, evaluation.validation, evaluation.test
        best, since_best = self.best, self.since_best + 1
        if validation is not None and (best is None or best.validation is None or validation > best.validation):
            best, since_best = Best(step=evaluation.step, validation=validation, test=test), 0
        last = Accuracy(train=train, validation=validation, test=test)
        return Standing(step=evaluation.step, last=last, best=best, since_best=since_best)


class Failure(BaseModel):
    """One failure of the run."""

    model_config = ConfigDict(extra="forbid")

    step: int
    stage: int | None
    message: str


class AttemptSummary(BaseModel):
    """What one attempt measured, from a start or resume to its end or failure; keys as in `Summary`."""

    model_config = ConfigDict(extra="forbid")

    began_after: int  # mini-batches completed before it
    ended_after: int  # mini-batches completed at its end, without lost work
    engine: EngineName | None
    schedule: str
    stages: int
    replicas: int
    partition: list[int]
    samples_per_s: float | None
    step_time_s: float | None
    predicted_step_time_s: float | None
    bubble: float | None
    predicted_bubble: float | None
    peak_memory_bytes: list[int | None]


class Summary(BaseModel):
    """`summary.json`: the results of a run. A value that the run does not have is null."""

    model_config = ConfigDict(extra="forbid")

    version: str
    name: str
    status: Literal["finished", "interrupted", "failed"]
    run_dir: str
    seed: int
    threads: int
    method: str
    schedule: str
    engine: EngineName
    stages: int
    replicas: int
    partition: list[int]
    steps: int
    epochs: float
    samples: int
    duration_s: float
    samples_per_s: float | None
    step_time_s: float | None
    predicted_step_time_s: float | None
    bubble: float | None
    predicted_bubble: float | None
    accuracy: Accuracy
    best: Best | None
    accuracy_per_depth: list[DepthAccuracy]
    weights_sha256: str | None
    parameters: int
    peak_memory_bytes: list[int | None]
    bytes_sent: dict[str, int]
    shares: list[int] = Field(default_factory=list)  # samples of a mini-batch that each replica takes at the end
    all_reduce_bytes: int = 0  # sent between replicas, over all stages
    failures: list[Failure]
    attempts: list[AttemptSummary] = Field(default_factory=list)  # those that reached training
    classes: list[str] = Field(default_factory=list)  # names of the classes, in the order of their numbers
    report: str | None = None  # path of report.html


class Writer:
    """Appends records to `records.jsonl`. When `write` returns, the whole line has been handed to the system."""

    def __init__(self, path: Path) -> None:
        """Open a file to append to it. A last line that was cut off when a run was killed is removed."""
        if path.exists():
            content = path.read_bytes()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                with path.open("r+b") as file:
                    file.truncate(whole)
        self._file: IO[str] = path.open("a", encoding="utf-8")

    def write(self, record: Record) -> None:
        self._file.write(record.model_dump_json() + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read(path: Path) -> Iterator[Record]:
    """All records of a file, in order.

    A last line that was cut off when the run was killed is left out. Raises CheckpointError for any other damage.
    """
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        if number == len(lines) and not line.endswith("\n"):
            return
        try:
            yield RECORD.validate_json(line)
        except ValidationError as error:
            raise CheckpointError(
                f"not a record: {error.errors()[0]['msg']}",
                file=str(path),
                line=number,
                mend="another program changed this file; restore it",
            ) from error


def effective(records: Iterator[Record]) -> list[Record]:
    """The records without the work that was lost in a failure and done again (see `EventRecord`)."""
    kept: list[Record] = []
    for record in records:
        if isinstance(record, EventRecord) and record.event == "resumed":
            kept = [old for old in kept if isinstance(old, EventRecord | PlanRecord) or old.step <= record.step]
        kept.append(record)
    return kept


def json_schema() -> dict[str, Any]:
    """The JSON Schema of one line of `records.jsonl`."""
    return RECORD.json_schema()


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON by `replace_file`."""
    replace_file(path, json.dumps(value, indent=2) + "\n")


def replace_file(path: Path, text: str) -> None:
    """Write a text file in one step: a reader finds the whole old file or the whole new one, never a part."""
    temporary = path.with_name(path.name + ".partial")
    temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
    temporary.replace(path)
