"""What a study keeps of each trial, and of all of them: the types of `trial.json` and `study.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from alray.errors import CheckpointError
from alray.records import Exit, Summary

TrialStatus = Literal["finished", "reached", "stopped", "diverged", "failed"]
"""`finished`: it ran to its end, without its target if there is one. `reached`: the target ended it. `stopped`: the
trial scheduler ended it. `diverged`: its losses grew without end. `failed`: it could not be run to its end."""


class Reached(BaseModel):
    """The first evaluation that reached the target: how far the trial was by then."""

    model_config = ConfigDict(extra="forbid")

    step: int  # mini-batches
    samples: int
    training_s: float | None  # without start-up and evaluations; None if it was the first mini-batch


class TrialRecord(BaseModel):
    """`trial.json`: one trial that has ended. The source of every table of the study."""

    model_config = ConfigDict(extra="forbid")

    number: int
    point: dict[str, Any]  # axis -> value, for a variant its name
    index: int  # which settings of the search; 0 without a search
    values: dict[str, Any]  # the settings that were drawn
    seed: int
    overrides: list[str]  # `alray run BASE` with these is the same run
    status: TrialStatus
    reason: str | None = None  # of `diverged` and `failed`
    reached: Reached | None = None
    exits: list[Exit] = Field(default_factory=list)  # of `early_exit`: every depth, then every threshold
    summary: Summary | None = None  # as in the run folder; None if the trial failed before it could run


class StudySummary(BaseModel):
    """`study.json`: how a study stands. The rows of its table are made from the trials."""

    model_config = ConfigDict(extra="forbid")

    version: str
    study: str
    status: Literal["finished", "interrupted"]
    study_dir: str
    points: int
    trials: int
    statuses: dict[TrialStatus, int]  # of the trials that have ended
    trials_s: float  # the sum of their durations
    rows: list[dict[str, Any]]
    findings: list[str] = []  # sentences that the figures lead to
    warnings: list[str] = []  # what makes them doubtful
    report: str | None = None


def read_study(path: Path) -> StudySummary:
    """Read a `study.json`. Raises CheckpointError if it is damaged."""
    try:
        return StudySummary.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise CheckpointError(
            f"not written by alray: {error.errors()[0]['msg']}", file=str(path), mend="`alray report` writes it again"
        ) from error


def read_trial(path: Path) -> TrialRecord:
    """Read a `trial.json`. Raises CheckpointError if it is damaged."""
    try:
        return TrialRecord.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise CheckpointError(
            f"not written by alray: {error.errors()[0]['msg']}",
            file=str(path),
            mend="delete this file to run the trial again with `alray study --resume`",
        ) from error
