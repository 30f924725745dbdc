"""The records and the summary of a run: their types, and how they are written and read.

`records.jsonl` holds one JSON object on each line. Every table and chart is made from these records, never from logs.
Many mini-batches share a line, and those of a long run are thinned out, so that the file stays small.

The docstring of a field is the definition of its figure. The pages, the terminal and docs/keys.md show it.

`samples_per_s` has one definition wherever it is shown: the samples of a mini-batch, over all replicas, divided by the
median step time of the mini-batches in question. These are all after warm-up in a summary, a comparison and a study,
those of one record in the line of progress and in the metrics of a tracker.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import fsum
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from alray.core.errors import CheckpointError
from alray.core.finite import finite
from alray.core.metric import ACCURACY, Metric
from alray.core.run_folder.metrics import METRICS
from alray.core.storage.appended import appending, keep_whole_lines, whole_lines
from alray.core.storage.json_file import RESTORE, first_fault, read_json
from alray.core.storage.location import Location, publish

VERSION = 4
"""Version of the records, the only one that is read."""

WARM_UP_STEPS = 10
"""Mini-batches after a start that no figure counts: the pipeline fills, and libraries choose their kernels."""

EACH_UNTIL = 4096
"""After this many mini-batches a record of losses is the mean over 2 mini-batches, after 2 x as many over 4, ..."""
_LINE_S, _LINE_LENGTH = 5.0, 256
"""A line of losses is written every so many seconds, and holds at most so many records."""


def _known_metric(name: str) -> str:
    if name not in METRICS:
        raise ValueError(f"`{name}` is no metric")
    return name


Status = Literal["finished", "interrupted", "failed"]
"""How a run ended."""

EngineName = Literal["ray", "ray_train", "inline"]
"""The executor of the plan: alray's Ray actors, the workers of Ray Train with torch's DDP, or a single process."""

MetricName = Annotated[str, AfterValidator(_known_metric), WithJsonSchema({"type": "string", "enum": list(METRICS)})]
Seconds = Annotated[float, PlainSerializer(lambda seconds: round(seconds, 7))]
"""A duration or a point in time, written to a tenth of a microsecond."""
Value = Annotated[float, PlainSerializer(lambda value: float(f"{value:.9g}"), when_used="json")]
"""A loss or a rate, written with 9 digits: as many as a value in float32 has."""


class _Documented(BaseModel):
    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings", use_attribute_docstrings=True)


class _Record(_Documented):
    v: int = Field(default=VERSION, ge=VERSION, le=VERSION)
    """Version of this format."""
    time_s: Seconds
    """Seconds since the run was started. The time between an end and a resume does not count."""
    step: int
    """Mini-batches completed by then."""
    epoch: float
    """Epochs completed by then."""
    samples: int
    """Samples seen by then, over all replicas."""


class StepRecord(_Record):
    """The losses of a mini-batch; from mini-batch 4,097 on, means over the mini-batches since the last such record.

    `Writer` puts many of these records into one `StepsRecord`, and `read` takes them out again.
    """

    kind: Literal["step"] = "step"
    losses: dict[int, dict[str, Value]]
    """By component (counted from 0) and by name of the loss."""
    lr: Value
    """Learning rate. With `optimizer.accumulate` all mini-batches of an update have the same one."""
    mini_batches: int = 1
    """How many mini-batches the losses are the mean of. A loss that only some of them have is the mean of those."""

    def has_losses_of(self, other: StepRecord) -> bool:
        """Whether both have losses of the same names in the same components."""
        return {index: own.keys() for index, own in self.losses.items()} == {
            index: own.keys() for index, own in other.losses.items()
        }


def mean_losses(each: Iterable[Mapping[int, Mapping[str, float]]]) -> dict[int, dict[str, float]]:
    """The mean of each loss over the mini-batches that have it: those of an own method may lack one now and then."""
    found: dict[int, dict[str, list[float]]] = {}
    for losses in each:
        for component, own in losses.items():
            values = found.setdefault(component, {})
            for name, value in own.items():
                values.setdefault(name, []).append(value)
    return {
        component: {name: fsum(values) / len(values) for name, values in own.items()}
        for component, own in found.items()
    }


_MOST_STEPS = 1e15
"""No epoch has more mini-batches."""


def require_fitting(step: int, epoch: float) -> None:
    """Raise ValueError if so many mini-batches cannot be so many epochs."""
    if not 0.5 * epoch < step < _MOST_STEPS * epoch:
        raise ValueError("its step and its epoch do not fit each other")


class StepsRecord(_Record):
    """Losses of many mini-batches: each list has an entry for each of the `StepRecord`s that the line holds."""

    kind: Literal["steps"] = "steps"
    steps: list[int]
    """`step` of each entry."""
    mini_batches: list[int]
    """How many mini-batches each entry is the mean of: those that end with its `step`."""
    times_s: list[Seconds]
    """`time_s` of each entry."""
    samples_seen: list[int]
    """`samples` of each entry."""
    lr: list[Value]
    """Learning rate of each entry."""
    losses: dict[int, dict[str, list[Value]]]
    """By component (counted from 0) and by name of the loss, the value of each entry, with 9 digits."""

    @model_validator(mode="after")
    def _require_whole(self) -> Self:
        lists: list[Sequence[object]] = [self.mini_batches, self.times_s, self.samples_seen, self.lr]
        lists += [values for own in self.losses.values() for values in own.values()]
        if not self.steps or any(len(values) != len(self.steps) for values in lists):
            raise ValueError("its lists are not of one length")
        require_fitting(self.step, self.epoch)
        return self

    @classmethod
    def of(cls, entries: Sequence[StepRecord]) -> StepsRecord:
        """The line of these records, at least one. All of them have the same losses."""
        last = entries[-1]
        return cls(
            time_s=last.time_s,
            step=last.step,
            epoch=last.epoch,
            samples=last.samples,
            steps=[entry.step for entry in entries],
            mini_batches=[entry.mini_batches for entry in entries],
            times_s=[entry.time_s for entry in entries],
            samples_seen=[entry.samples for entry in entries],
            lr=[entry.lr for entry in entries],
            losses={
                component: {name: [entry.losses[component][name] for entry in entries] for name in own}
                for component, own in last.losses.items()
            },
        )

    def entries(self) -> Iterator[StepRecord]:
        """The records that the line was made of."""
        per_epoch = round(self.step / self.epoch)
        for place, step in enumerate(self.steps):
            yield StepRecord(
                time_s=self.times_s[place],
                step=step,
                epoch=step / per_epoch,
                samples=self.samples_seen[place],
                losses={
                    component: {name: values[place] for name, values in own.items()}
                    for component, own in self.losses.items()
                },
                lr=self.lr[place],
                mini_batches=self.mini_batches[place],
            )


class Span(_Documented):
    """One action as the stage's clock measured it, in seconds since the run was started."""

    action: str
    """The printed form of an action, such as `2F0`; or `data 0`, `send_wait`, `receive_wait`."""
    start_s: Seconds
    end_s: Seconds


class StageRecord(_Record):
    """How one stage spent its time during the `steps` mini-batches that end at `step`.

    It names them: they are `step - steps + 1` to `step`, counted from 1. compute_s + send_wait_s + receive_wait_s +
    idle_s is their wall time on this stage, without cuts (evaluations and checkpoints). A cut is as long as the stage
    itself makes it: stage 0 may begin it while later stages still train. So reports take the time of a mini-batch from
    the last stage, where it is completed, and never from the other ones.
    """

    kind: Literal["stage"] = "stage"
    stage: int
    """The stage, counted from 0."""
    replica: int
    """The replica, counted from 0."""
    steps: int
    """How many mini-batches the record covers."""
    warm_up: bool
    """Whether these are the first ten mini-batches after a start, profiled ones, or none: no figure counts them."""
    data_s: Seconds = 0.0
    """Stage 0 reads the mini-batch and prepares its samples. It is no part of forward."""
    forward_s: Seconds
    """The forward pass of the stage's components, and the second one if activations are recomputed."""
    backward_s: Seconds
    """Gradients of the stage's components; with local losses also the losses and the label chain."""
    update_s: Seconds
    """The steps of the optimizers."""
    compute_s: Seconds
    """The sum of data, forward, backward and update."""
    send_wait_s: Seconds
    """The stage packs messages, and waits for room on the edge."""
    receive_wait_s: Seconds
    """The stage waits for messages, barriers and sums over replicas, and unpacks messages."""
    idle_s: Seconds
    """The rest of the time from one mini-batch to the next: the time between two actions."""
    evaluation_s: Seconds
    """Evaluations and checkpoints, and what the stage waits before and after them until it trains again. They are in
    none of the other times."""
    step_times_s: list[Seconds]
    """The last stage only: the times from one completed mini-batch to the next, without evaluations and checkpoints."""
    after_cut: list[int] = Field(default_factory=list)
    """The mini-batches of this record that came first after a start, and where stages or replicas wait for each other
    also first after an evaluation or a checkpoint. They find the pipeline empty, so their times in `step_times_s` are
    no step times."""
    after_cut_s: dict[Literal["data_s", "forward_s", "backward_s", "update_s"], Seconds] = Field(default_factory=dict)
    """What the mini-batches of `after_cut` took of these times, where it is not 0. The time of such a mini-batch is not
    known, so no share of it is."""
    bytes_sent: dict[str, int]
    """By edge, since this attempt was started."""
    uncompressed_bytes: dict[str, int] | None = None
    """What `bytes_sent` would be without compression of messages; null where there is none."""
    share: int | None = None
    """Samples of a mini-batch that this replica takes from now on; null with one replica."""
    all_reduce_bytes: int = 0
    """Bytes sent to the other replicas, since this attempt was started."""
    all_reduce_s: Seconds = 0.0
    """Duration of the all-reduces since this attempt was started, hidden or waited for. DDP does not report it: with
    `ray_train` it is 0 here and part of `backward_s`."""
    peak_memory_bytes: int | None
    """As in `summary.json`, so far."""
    queued_messages: int | None = None
    """Messages from the stage below that have arrived and wait, when the last of these mini-batches is done. null on
    stage 0, which reads the data itself, and in a pipeline whose messages torch orders."""
    spans: list[Span] = Field(default_factory=list)
    """Each action of the mini-batches that were traced."""

    @property
    def between_cuts(self) -> StageRecord:
        """The record without the mini-batches of `after_cut`."""
        rest: dict[str, Any] = {name: getattr(self, name) - seconds for name, seconds in self.after_cut_s.items()}
        rest["compute_s"] = self.compute_s - sum(self.after_cut_s.values())
        rest["steps"] = self.steps - len(self.after_cut)
        return self.model_copy(update={**rest, "step_times_s": [], "after_cut": [], "after_cut_s": {}})

    @property
    def counted_times_s(self) -> list[float]:
        """Those of `step_times_s` that are step times; all of them where each mini-batch came after a cut."""
        first = self.step - len(self.step_times_s) + 1
        counted = [time for step, time in enumerate(self.step_times_s, first) if step not in self.after_cut]
        return counted or list(self.step_times_s)

    @property
    def samples_per_s(self) -> float | None:
        """As in `summary.json`, of these mini-batches; None but on the last stage."""
        times = self.counted_times_s
        return samples_per_s(self.samples / self.step, median(times)) if times and self.step else None


def samples_per_s(batch_size: float, step_time_s: float | None) -> float | None:
    """The throughput by its only definition; None where no step time was measured.

    Args:
        batch_size: samples of a mini-batch over all replicas; a mean, for the last one of an epoch may be smaller.
    """
    return batch_size / step_time_s if step_time_s and batch_size else None


class Scores(_Documented):
    """The metric of the whole network; in classification the accuracy, in 0..1."""

    train: float | None = None
    validation: float | None = None
    test: float | None = None


class DepthScores(_Documented):
    """The metric of the route of this depth (depth 1 is the first component alone). null means not measured."""

    depth: int
    train: float | None = None
    validation: float | None = None
    test: float | None = None
    further: dict[str, Scores] = Field(default_factory=dict, exclude_if=operator.not_)
    """Further metrics that a Python program gave, by name."""


class EvaluationRecord(_Record):
    """The metric of the task after `step` mini-batches, on each set; in classification the accuracy, in 0..1. Training
    samples are measured without augmentation."""

    kind: Literal["evaluation"] = "evaluation"
    metric: MetricName = ACCURACY.name
    """The name of the metric."""
    train: float | None = None
    validation: float | None = None
    test: float | None = None
    per_depth: list[DepthScores]
    """The metric of each route of inference."""
    further: dict[str, Scores] = Field(default_factory=dict, exclude_if=operator.not_)
    """Further metrics of the whole network, by name. They choose nothing."""
    duration_s: Seconds
    """From its last mini-batch until the scores are there, on stage 0. What later stages still train is part of it, so
    it is no pause of training."""


class CheckpointRecord(_Record):
    """A complete checkpoint: its manifest was written."""

    kind: Literal["checkpoint"] = "checkpoint"
    path: str
    """Relative to the run folder."""
    bytes: int
    """Size of its files."""
    duration_s: Seconds
    """How long the slowest stage took to write its files, while training continued."""


class EventRecord(_Record):
    """Something that happened to the run.

    `resumed` means that the run continued from `step`. Earlier records of the kinds steps, stage, evaluation and
    checkpoint with a later step describe work that was lost and done again.
    """

    kind: Literal["event"] = "event"
    event: Literal["started", "resumed", "failure", "interrupted", "finished", "failed", "warning"]
    message: str
    stage: int | None = None
    replica: int | None = None
    date: str
    """When it happened, in UTC: `2026-11-20T16:50:26.123+00:00`."""
    taken_processors: float | None = None
    """Of `finished`, `interrupted` and `failed`: the processors that other programs took from the stages, as a mean
    over the time of training. null in other events, on a cluster or a GPU, and in the trials of a study, which measures
    it itself."""


class PlanRecord(_Record):
    """The plan of an attempt; `plan.json` holds the latest plan."""

    kind: Literal["plan"] = "plan"
    plan: dict[str, Any]
    engine: EngineName | None = None
    """The engine that executed it."""


_Whole = StageRecord | EvaluationRecord | CheckpointRecord | EventRecord | PlanRecord
Record = StepRecord | _Whole
_LINE: TypeAdapter[_Whole | StepsRecord] = TypeAdapter(Annotated[_Whole | StepsRecord, Field(discriminator="kind")])


class Best(_Documented):
    """The evaluation with the best metric on the validation set, in classification the highest accuracy; the earliest
    of equals."""

    step: int
    validation: float | None
    test: float | None
    checkpoint: str | None = None
    """In a summary: the checkpoint of these weights, relative to the run folder; null if it was not kept."""


class Plateau(BaseModel):
    """What a learning rate that follows the metric knows of the evaluations so far."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    best: float | None = None
    bad: int = 0  # evaluations without a better value
    cooldown: int = 0  # evaluations to come that do not count
    changes: int = 0  # of the rate


class Standing(BaseModel):
    """The state of a run's evaluations so far, such as the best one. Every checkpoint holds it, so that a resumed run
    continues from it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    step: int = 0  # mini-batches before the last evaluation
    metric: MetricName = ACCURACY.name
    last: Scores = Scores()
    best: Best | None = None  # chosen on validation: the test set chooses nothing
    since_best: int = 0  # evaluations after the best one
    plateau: Plateau = Field(default=Plateau(), exclude_if=lambda plateau: plateau == Plateau())  # of the rate

    def of_metric(self, name: MetricName) -> Standing:
        """The standing of evaluations by this metric: values of two metrics cannot be compared."""
        plateau = Plateau(changes=self.plateau.changes)
        return self if self.metric == name else Standing(metric=name, plateau=plateau)

    def after(self, evaluation: EvaluationRecord) -> Standing:
        """The standing after one more evaluation. A second one after the same mini-batch, at the end of a run, can only
        add what the first one did not measure."""
        if evaluation.metric != self.metric:
            return self.of_metric(evaluation.metric).after(evaluation)
        validation, test = evaluation.validation, evaluation.test
        best, since_best = self.best, self.since_best + 1
        if evaluation.step == self.step:
            if best is not None and best.step == self.step and best.test is None:
                best = best.model_copy(update={"test": test})
            return self.model_copy(update={"best": best})
        if METRICS[evaluation.metric].is_better(validation, None if best is None else best.validation):
            best, since_best = Best(step=evaluation.step, validation=validation, test=test), 0
        last = Scores(train=evaluation.train, validation=validation, test=test)
        return Standing(
            step=evaluation.step,
            metric=evaluation.metric,
            last=last,
            best=best,
            since_best=since_best,
            plateau=self.plateau,
        )


class Failure(_Documented):
    """One failure of the run."""

    step: int
    stage: int | None
    message: str


class AttemptSummary(_Documented):
    """The measurements of one attempt, from a start or resume to its end or failure; keys as in `Summary`."""

    began_after: int
    """Mini-batches completed before it."""
    ended_after: int
    """Mini-batches completed at its end. Work that a failure lost and that was done again is left out."""
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


class _Facts(_Documented):
    """The part of a summary that neither records nor plan hold."""

    version: str
    """Version of alray."""
    name: str
    """Name of the spec."""
    status: Status
    """`finished`, `interrupted` or `failed`."""
    run_dir: str
    """Absolute path of the run folder."""
    seed: int
    """Seed of the spec."""
    threads: int
    """Threads of each stage."""
    engine: EngineName
    """`ray`, `ray_train` (Ray Train with torch's DDP) or `inline` (one process)."""
    duration_s: float
    """Wall time from start to end, summed over the attempts of a resumed run."""
    weights_sha256: str | None
    """Hash of the final weights; explained below."""
    parameters: int
    """Number of trainable parameters of all components."""
    classes: list[str] = Field(default_factory=list)
    """The names of the classes, in the order of their numbers; of the labels or targets in other tasks."""
    chance: float | None = None
    """The metric of a network that gives all samples the same scores, by the labels of training: the share of the most
    frequent class, an R² of 0, or the loss of the shares of all tokens. null where the labels are known only when
    samples are read, and in tasks of users."""
    report: str | None = None
    """Absolute path of `report.html`."""


class Figures(_Documented):
    """The figures that follow from records and plan. None means not measured."""

    method: str
    """Method of the latest plan."""
    schedule: str
    """Schedule of the latest plan."""
    gradient_delay: int = 0
    """How many updates older the weights are with which a gradient is computed than those that it updates: 1 in the
    schedule 2bw, 0 in all others."""
    stages: int
    """Number of stages of the latest plan."""
    replicas: int
    """Number of replicas of the latest plan."""
    partition: list[int]
    """Number of components of each stage in the latest plan, or of each virtual stage if a stage has several."""
    steps: int
    """Mini-batches that the final weights have seen."""
    epochs: float
    """Epochs that the final weights have seen."""
    samples: int
    """Samples that the final weights have seen."""
    samples_per_s: float | None
    """Samples of a mini-batch, over all replicas, divided by `step_time_s`."""
    step_time_s: float | None
    """Median time from one completed mini-batch to the next, after warm-up, between two mini-batches without an
    evaluation or checkpoint between them. If there are no such two and stages wait for each other, it is the time of a
    mini-batch through the empty pipeline. Where stages take turns in one process, all of them need this time. It is
    null if the run was not longer than the warm-up."""
    step_time_quartiles_s: list[float] | None = None
    """First and third quartile of the times whose median is `step_time_s`: half of the mini-batches took a time between
    the two. They lie far apart where the speed changed during the run."""
    predicted_step_time_s: float | None
    """The plan's prediction of `step_time_s`."""
    bubble: float | None
    """Share of the stages' time after warm-up in which they did not compute: 1 minus what a stage computes for a
    mini-batch, as a mean over the stages, divided by the mean step time. Reading data counts as computing. Evaluations
    and checkpoints, and the pipeline running empty and full around them, are not part of this time. It is null where
    several stages take turns in one process (`--inline`): there a stage waits while another one computes, and that is
    no bubble."""
    predicted_bubble: float | None
    """The plan's prediction of `bubble`, by the same definition."""
    doubts: list[str] = Field(default_factory=list)
    """Sentences about times of the run that cannot be relied on: training that took less time than its busiest stage
    computed, or other programs that took processors. A sound run has none."""
    metric: MetricName = ACCURACY.name
    """The name of the task's metric, which evaluations measure: `accuracy` in classification."""
    scores: Scores = Scores()
    """`train`, `validation` and `test` accuracy of the final weights, with the deepest route; training samples without
    augmentation. In another task than classification it is the value of `metric`, and the key is its name, such as
    `perplexity`."""
    best: Best | None
    """`step`, `validation` and `test` of the evaluation with the highest validation accuracy, or the best `metric`; the
    earliest if several are equal. `checkpoint`: the folder of these weights; null if they were not kept
    (`run.checkpoint: null`)."""
    scores_per_depth: list[DepthScores] = Field(default_factory=list)
    """For each route: `depth` (1 is the first component alone), `train`, `validation`, `test`. In another task the key
    begins with the name of `metric`, such as `perplexity_per_depth`."""
    peak_memory_bytes: list[int | None]
    """For each stage, the most memory that its process used, evaluations included, minus what it used before the stage
    was built, when only the libraries were loaded. On a GPU torch's allocator counts it. On a CPU it is more than the
    stage's tensors: it includes buffers of the kernels, memory that the allocator cannot reuse, and on stage 0 the data
    set and its library. So it is null where the process is not that of this stage alone: where several stages share it,
    in a Python program, and where it trained before, as for the later trials of a study."""
    predicted_memory_bytes: list[int] = Field(default_factory=list)
    """For each stage, the bytes of its tensors and of its edges' buffers at the peak of training, by the plan; what the
    process itself holds, evaluations and the data set come on top."""
    bytes_sent: dict[str, int]
    """For each edge, such as `0->1`: bytes sent for the work that `steps` counts, over all attempts, evaluations
    included. Work that was lost, by a failure or at the end of a run that did not finish, is left out."""
    uncompressed_bytes: dict[str, int] | None = None
    """What `bytes_sent` would be without `pipeline.messages`; null where nothing is compressed."""
    shares: list[int] = Field(default_factory=list)
    """Samples of a mini-batch that each replica takes at the end."""
    all_reduce_bytes: int = 0
    """Bytes sent between replicas, over all stages, counted as `bytes_sent`."""
    failures: list[Failure]
    """The failures of the run: `step`, `stage`, `message`."""
    attempts: list[AttemptSummary] = Field(default_factory=list)
    """A run that failed or was resumed starts anew. For each attempt that reached training: `began_after` and
    `ended_after` mini-batches, and its `engine`, `schedule`, `stages`, `replicas`, `partition`, `samples_per_s`,
    `step_time_s`, `predicted_step_time_s`, `bubble`, `predicted_bubble`, `peak_memory_bytes`. The figures of time
    outside this list are those of the last plan."""

    @property
    def measures(self) -> Metric:
        """The task's metric."""
        return METRICS[self.metric]


class Summary(Figures, _Facts):
    """`summary.json`: the results of a run. A value that the run does not have is null."""

    @model_validator(mode="before")
    @classmethod
    def _take_from_the_metric(cls, values: Any) -> Any:
        """Take the fields from their keys in the file."""
        if not isinstance(values, dict):
            return values
        keys = {f"{values.get('metric')}{ending}": f"scores{ending}" for ending in ("", "_per_depth")}
        return {keys.get(name, name): value for name, value in values.items()}

    @model_serializer(mode="wrap")
    def _name_by_the_metric(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        keys = {field: key for key, field in self._fields_by_key.items()}
        return {keys.get(name, name): value for name, value in write(self).items()}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The fields by their keys in the file too, such as `summary.accuracy`."""
            if name.startswith("_") or "metric" not in self.__dict__:
                return super().__getattr__(name)
            if (field := self._fields_by_key.get(name)) is not None:
                return getattr(self, field)
            told = f"the summary has no `{name}`; the metric of this run is `summary.{self.metric}`"
            raise AttributeError(told, name=name, obj=self)

    @property
    def _fields_by_key(self) -> dict[str, str]:
        """The fields whose key in the file has the metric's name."""
        return {f"{self.metric}{ending}": f"scores{ending}" for ending in ("", "_per_depth")}


class Thinning:
    """Thins out the losses of a long run, so that what is kept of them grows with the logarithm of its length."""

    def __init__(self) -> None:
        self._group: list[StepRecord] = []

    def take(self, record: StepRecord) -> StepRecord | None:
        """The record to keep: this one, or the mean of a group that it completes; None inside a group."""
        self._group.append(record)
        together = 1 << ((record.step - 1) // EACH_UNTIL).bit_length()
        return None if record.step % together else self.rest()

    def rest(self) -> StepRecord | None:
        """The mean of a group that is not complete; None if there is none."""
        group, self._group = self._group, []
        if len(group) < 2:
            return group[0] if group else None
        losses = mean_losses(each.losses for each in group)
        return group[-1].model_copy(update={"losses": losses, "mini_batches": len(group)})


class Writer:
    """Appends records to `records.jsonl`.

    Records of a stage are written at once, losses a few seconds later, and all of them before any other kind of
    record. What is written has been handed to the system; on object storage (`alray.core.storage.appended`) records of
    a stage and losses wait for at most 20 s.
    """

    def __init__(self, path: Location, require: Callable[[], None] = lambda: None) -> None:
        """Open a file to append to it. What a kill or a power cut has left of its last lines is removed.

        Args:
            require: as for `appending`.
        """
        keep_whole_lines(path)
        self.path = path
        self._torn = False  # whether a line was not written to its end
        self._file = appending(path, require)
        self._thinning = Thinning()
        self._losses: list[StepRecord] = []  # not written yet
        self._written_s = -_LINE_S  # `time_s` of the line of losses before; the first is written at once

    def write(self, record: Record) -> None:
        if isinstance(record, StepRecord):
            self._keep(self._thinning.take(record))
            if self._losses and record.time_s - self._written_s > _LINE_S:
                self._write_losses()
            return
        if isinstance(record, StageRecord):
            self._write_line(record)
            return
        self._write_rest()
        self._write_line(record)
        self._file.flush()

    def sync(self) -> None:
        """Write all records that came so far, and wait until they outlast a power cut."""
        self._write_rest()
        self._file.sync()

    def close(self) -> None:
        """As `sync`, and close the file."""
        try:
            self.sync()
        finally:
            self._file.close()

    def _keep(self, losses: StepRecord | None) -> None:
        if losses is not None:
            if self._losses and not losses.has_losses_of(self._losses[-1]):
                self._write_losses()
            self._losses.append(losses)
        if len(self._losses) == _LINE_LENGTH:
            self._write_losses()

    def _write_rest(self) -> None:
        self._keep(self._thinning.rest())
        if self._losses:
            self._write_losses()

    def _write_losses(self) -> None:
        self._write_line(StepsRecord.of(self._losses))
        self._written_s = self._losses[-1].time_s
        self._losses.clear()

    def _write_line(self, record: Record | StepsRecord) -> None:
        if self._torn:  # the disk was full, and nothing may follow a part of a line
            keep_whole_lines(self.path)
        self._torn = True
        self._file.write(record.model_dump_json() + "\n")
        self._torn = False


def read(path: Location) -> Iterator[Record]:
    """All records of a file, in order.

    A last line that is not complete, or was cut off when the run was killed, is left out. Raises CheckpointError for
    records of another version and for any other damage, and FileNotFoundError if there is no file.
    """
    for number, line in enumerate(whole_lines(path), start=1):
        try:
            record = _LINE.validate_json(line)
        except ValidationError as error:
            raise _damage(error, path, number) from error
        if isinstance(record, StepsRecord):
            yield from record.entries()
        else:
            yield record


def _damage(error: ValidationError, path: Location, line: int) -> CheckpointError:
    first = error.errors()[0]
    if first["loc"][-1:] == ("v",):
        return CheckpointError(
            f"a record of version {first['input']}; this alray reads version {VERSION}",
            file=str(path),
            line=line,
            hint="use the version of alray that wrote it, as environment.json says",
        )
    return CheckpointError(f"not a record: {first_fault(error)}", file=str(path), line=line, hint=RESTORE)


def effective(records: Iterator[Record]) -> list[Record]:
    """The records without the work that was lost in a failure and done again (see `EventRecord`)."""
    remaining: list[Record] = []
    for record in records:
        if isinstance(record, EventRecord) and record.event == "resumed":
            remaining = [
                old for old in remaining if isinstance(old, EventRecord | PlanRecord) or old.step <= record.step
            ]
        remaining.append(record)
    return remaining


def json_schema() -> dict[str, Any]:
    """The JSON Schema of one line of `records.jsonl`."""
    return _LINE.json_schema()


class Git(BaseModel):
    """The state of the repository around a spec.

    Attributes:
        dirty: whether files were changed; None: that is not known.
    """

    commit: str
    dirty: bool | None


class Environment(BaseModel):
    """What alray reads of `environment.json`: the machine, the versions, and where the run came from. Further
    keys stay as they are."""

    model_config = ConfigDict(extra="allow")

    alray: str | None = None
    python: str | None = None
    torch: str | None = None
    platform: str | None = None
    device: str | None = None
    cores: int | None = None
    engine: str | None = None
    date: str | None = None
    command: list[str] | None = None
    resumed_by: list[list[str]] | None = None
    changed: list[str] | None = None
    git: Git | None = None
    packages: dict[str, str] | None = None
    brought_by: dict[str, str] | None = None
    given: dict[str, Any]
    data_sha256: str | None = None
    spec_sha256: list[str]
    objects: list[str] | None = None
    model_sha256: str | None = None
    architecture_sha256: str | None = None
    given_sha256: str | None = None


def model_of(run_dir: Location) -> str | None:
    """The hash of the model that a Python program gave to a run; None where its spec names the model."""
    found: str | None = (read_environment(run_dir) or {}).get("model_sha256")
    return found


def read_environment(run_dir: Location) -> dict[str, Any] | None:
    """The content of `environment.json`; None if there is none. Raises CheckpointError if it is damaged."""
    file = run_dir / "environment.json"
    return read_json(file, Environment).model_dump(exclude_unset=True) if file.is_file() else None


def read_summary(run_dir: Location) -> Summary | None:
    """The summary of a run; None while it is running, and if it was killed. Raises CheckpointError if it is damaged."""
    file = run_dir / "summary.json"
    hint = "restore it, or delete it: the end of the run writes another"
    return read_json(file, Summary, hint) if file.is_file() else None


def write_json(path: Location, value: Any) -> None:
    """Write a value as JSON by `replace_file`. Numbers that are not finite become null."""
    replace_file(path, json.dumps(finite(value), indent=2, allow_nan=False) + "\n")


def replace_file(path: Location, text: str) -> None:
    """Write a text file by `publish`."""
    publish(path, text.encode("utf-8", "backslashreplace"))
