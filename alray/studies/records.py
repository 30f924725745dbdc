"""The records of a study, for each trial and for all of them: the types of `trial.json` and `study.json`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, NonNegativeInt

from alray.core.metric import ACCURACY, Metric
from alray.core.run_folder.records import Scores, Summary
from alray.core.storage.json_file import read_json

TrialStatus = Literal["finished", "reached", "stopped", "diverged", "failed", "lost"]
"""`finished`: it ran to its end, without its target if there is one. `reached`: the target ended it. `stopped`: the
trial scheduler ended it. `diverged`: its losses grew without end. `failed`: its spec was refused, its code
raised an error, or a stage ran out of memory. `lost`: its process or node died, also where Ray ended it for want of
memory, or the system refused something: no result; a resume runs it again."""


def _is_override(text: str) -> str:
    """Raises ValueError unless the text is `key=` and a value as JSON, which `override_text` writes."""
    json.loads(text.partition("=")[2])
    return text


def _has_claims(spec: dict[str, Any]) -> dict[str, Any]:
    """Raises ValueError if `verdicts` is not a list of mappings, or if one of them has no text as its `claim`."""
    verdicts = spec.get("verdicts")
    if not isinstance(verdicts, list) or not all(
        isinstance(each, dict) and isinstance(each.get("claim"), str) for each in verdicts
    ):
        raise ValueError("`verdicts` is not a list of mappings that have a `claim` each")
    return spec


class SkippedPoint(BaseModel):
    """A point that is no possible run, and why. The study has no trials of it."""

    model_config = ConfigDict(extra="forbid")

    point: dict[str, Any]  # axis -> value, for a variant its name
    reason: str


class Begun(BaseModel):
    """`trials.json`: what a study consists of. It may grow: further trials come after those that there are."""

    class Point(BaseModel):
        values: dict[str, Any]  # axis -> value, for a variant its name
        spec_sha256: str

    class Trial(BaseModel):
        number: NonNegativeInt
        point: NonNegativeInt
        overrides: list[str]

    study: str
    base: str
    spec: Annotated[dict[str, Any], AfterValidator(_has_claims)]  # the study itself
    points: list[Point]
    skipped: list[SkippedPoint]
    trials: list[Trial]
    # of the user's code: SHA-256 of each file by its path below the folder of the base
    code: dict[str, str]
    objects: dict[str, str | None]  # that a Python program gave: SHA-256 of each, null where nothing is compared


class Reached(BaseModel):
    """The first evaluation that reached the target: how far the trial was by then."""

    model_config = ConfigDict(extra="forbid")

    step: int  # mini-batches
    samples: int
    training_s: float | None  # without start-up and evaluations; None if it was the first mini-batch


class Times(BaseModel):
    """What a trial took, from the records of its run: the time of all its training, and the parts of a mini-batch.

    The parts are means over the mini-batches after warm-up and over replicas, and sums over the stages: what the
    devices compute for one mini-batch, side by side or one after another.
    """

    model_config = ConfigDict(extra="forbid")

    training_s: float | None  # without start-up and evaluations; None if the run was a single mini-batch
    epoch_s: float | None  # training_s divided by the epochs
    forward_s: float | None  # this and the next two: None if no mini-batch came after warm-up
    backward_s: float | None  # losses and label chain included
    update_s: float | None


class TrialRecord(BaseModel):
    """`trial.json`: one trial that has ended. The source of every table of the study."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings")

    number: NonNegativeInt
    point: dict[str, Any]  # axis -> value, for a variant its name
    index: int  # which settings of the search; 0 without a search
    values: dict[str, Any]  # the settings that were drawn
    seed: int
    session: NonNegativeInt = 0  # which start of the study it belongs to (`sessions`); tables and pages count from 1
    # when Ray was started, or connected to, for it, in a study of several sessions
    began: str | None = None
    # `alray run BASE` with these is the same run
    overrides: list[Annotated[str, AfterValidator(_is_override)]]
    status: TrialStatus
    reason: str | None = None  # of `stopped`, `diverged`, `failed` and `lost`
    reached: Reached | None = None
    times: Times | None = None  # None if the trial failed
    # that other programs kept busy and it needed, as a mean over its time; None where that is not known
    taken_processors: float | None = None
    summary: Summary | None = None  # as in the run folder; None if the trial failed before it could run

    @property
    def metric(self) -> Metric | None:
        """The task's metric; None if the trial has no summary."""
        return None if self.summary is None else self.summary.measures

    @property
    def without_accuracies(self) -> TrialRecord:
        """The record without what it says of accuracies or other metrics, for studies that measure times only."""
        if self.summary is None:
            return self
        silent = self.summary.model_copy(update={"scores": Scores(), "scores_per_depth": [], "best": None})
        return self.model_copy(update={"summary": silent})


class Compared(BaseModel):
    """The figure that decides a claim, at one point: its median with the ends of its 90 % interval.

    Attributes:
        p_holds: the p-value of the claim there: the chance of a figure that speaks at least as much for it, were the
            truth at the bound.
        p_fails: that of its opposite.
    """

    model_config = ConfigDict(extra="forbid")

    point: str  # the values of the axes that `of` leaves open
    value: float
    low: float
    high: float
    p_holds: float
    p_fails: float


UNDECIDED: Final = "not decided by this study"
NOT_IN_FEW_DAYS: Final = "not decided in fewer than three days"
ESTIMATED: Final = "estimated"


class Answer(BaseModel):
    """What a study says of a claim of its spec."""

    model_config = ConfigDict(extra="forbid")

    claim: str
    source: str | None = None  # the publication that makes the claim, with what it says
    figure: str
    bound: str
    answer: Literal["holds", "does not hold", "not decided by this study", "estimated"]  # the last: without a bound
    compared: list[Compared]
    doubts: list[str]
    p_holds: float = 1.0  # the p-value of the claim at all points together
    p_fails: float = 1.0  # that of its opposite
    units: str = ""  # what its intervals are over, such as `5 seeds`
    few_days: bool = False  # it is about times of fewer than three days: then no bound is decided
    published: float | None = None  # of an estimate: what the publication gives for its figure

    @property
    def p(self) -> float:
        """The two-sided p-value: twice the smaller one."""
        return min(1.0, 2.0 * min(self.p_holds, self.p_fails))

    @property
    def says(self) -> str:
        """The answer in words. Of times of fewer than three days, it says so."""
        if not self.few_days or not self.compared:
            return self.answer
        return NOT_IN_FEW_DAYS if self.answer == UNDECIDED else f"{self.answer} in fewer than three days"

    @property
    def says_in_full(self) -> str:
        """`says`, and whether an estimate contains what was published: `estimated, excludes the published 1`. Of
        several points it says at how many."""
        if self.published is None or self.answer != ESTIMATED:
            return self.says
        within = sum(each.low <= self.published <= each.high for each in self.compared)
        verb = "contains" if within else "excludes"
        where = f" at {within} of {len(self.compared)} points" if 0 < within < len(self.compared) else ""
        return f"{self.says}, {verb} the published {self.published:g}{where}"


class StudySummary(BaseModel):
    """`study.json`: how a study stands. The rows of its table are made from the trials."""

    model_config = ConfigDict(extra="forbid")

    version: str
    study: str
    status: Literal["finished", "interrupted", "unfinished"]  # `unfinished`: what has not ended was lost
    study_dir: str
    points: int
    skipped: list[SkippedPoint] = []  # further combinations of the axes, which are no possible runs
    trials: int
    statuses: dict[TrialStatus, int]  # of the trials that have ended
    lost: int = 0  # trials that a resume runs again
    trials_s: float  # the sum of their durations
    rows: list[dict[str, Any]]
    findings: list[str] = []  # sentences that the figures lead to
    warnings: list[str] = []  # what makes them doubtful
    verdicts: list[Answer] = []  # the claims of the spec
    report: str | None = None

    @property
    def outcome(self) -> str:
        """The status as headings show it. Where trials failed, their number stands in place of `finished`."""
        failed = self.statuses.get("failed", 0)
        if not failed:
            return self.status
        return f"{failed} failed" if self.status == "finished" else f"{self.status}, {failed} failed"


def read_study(path: Path) -> StudySummary:
    """Read a `study.json`. Raises CheckpointError if it is damaged."""
    return read_json(path, StudySummary, "`alray report` writes it again")


def read_trial(path: Path) -> TrialRecord:
    """Read a `trial.json`. Raises CheckpointError if it is damaged."""
    return read_json(path, TrialRecord, "delete this file to run the trial again with `alray study --resume`")


def metric_of(records: Iterable[TrialRecord]) -> Metric:
    """The metric of a study's task, which all its trials have; accuracy where no trial has a summary."""
    return next((metric for record in records if (metric := record.metric) is not None), ACCURACY)
