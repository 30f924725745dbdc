"""The reports of a stage to the driver: values that cross the process border, never tensors."""

from __future__ import annotations

from dataclasses import dataclass, field

from alray.core.errors import AlrayError
from alray.core.run_folder.records import EvaluationRecord, EventRecord, StageRecord, Standing
from alray.core.run_folder.store import ComponentFile


@dataclass(frozen=True)
class Losses:
    """Losses of one mini-batch on this stage: component -> loss name -> value."""

    step: int
    losses: dict[int, dict[str, float]]
    lr: float
    time_s: float
    samples: int = 1  # of this mini-batch, on this replica


@dataclass(frozen=True)
class CheckpointPart:
    """The components of one stage are on disk: its part of a checkpoint."""

    step: int
    files: tuple[ComponentFile, ...]
    duration_s: float
    final: bool
    parameters: tuple[tuple[int, str], ...] = ()  # (component, SHA-256), to compare between replicas
    shares: tuple[int, ...] = ()  # samples of a mini-batch that each replica takes from here on, where they change
    standing: Standing | None = None  # of the run's evaluations, from stage 0 of replica 0


Telemetry = Losses | CheckpointPart | StageRecord | EvaluationRecord | EventRecord


@dataclass(frozen=True)
class StageStatus:
    """The answer of a stage to one poll of the driver."""

    stage: int
    replica: int
    step: int  # mini-batches completed
    progress: int  # actions completed since the start; grows as long as the stage works
    activity: str  # "compute", "data", a wait, "barrier", "between", "checkpoint", "starting", "finished"
    awaits: str = ""  # the sample or the mini-batch that is read, where the stage reads one
    first_time: bool = False  # whether it does so for the first time since it started
    reports: tuple[Telemetry, ...] = ()
    finished: bool = False
    dead: bool = False  # the process is gone
    answered: bool = True  # this poll; otherwise this is what it said before
    error: AlrayError | None = None
    detail: str = field(default="", repr=False)  # traceback, for the log
