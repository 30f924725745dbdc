"""What a stage tells the driver: values that cross the process border, never tensors."""

from __future__ import annotations

from dataclasses import dataclass, field

from alray.errors import AlrayError
from alray.records import EvaluationRecord, StageRecord
from alray.store import ComponentFile


@dataclass(frozen=True)
class Losses:
    """Losses of one mini-batch on this stage: component -> loss name -> value."""

    step: int
    losses: dict[int, dict[str, float]]
    lr: float
    time_s: float
    samples: int = 1  # of the mini-batch, that this replica took


@dataclass(frozen=True)
class CheckpointPart:
    """One stage's components of a checkpoint are on disk."""

    step: int
    files: tuple[ComponentFile, ...]
    duration_s: float
    final: bool
    parameters: tuple[tuple[int, str], ...] = ()  # SHA-256 of each component's, where there are replicas to compare
    shares: tuple[int, ...] = ()  # samples of a mini-batch each replica takes from here on, where they change


Telemetry = Losses | CheckpointPart | StageRecord | EvaluationRecord


@dataclass(frozen=True)
class StageStatus:
    """One answer of a stage to the driver's poll."""

    stage: int
    replica: int
    step: int  # mini-batches completed
    progress: int  # actions completed since the start: what must grow while the stage is alive
    activity: str  # "compute", "data", a wait, "barrier", "between", "checkpoint", "starting", "finished"
    activity_s: float  # for how long
    reports: tuple[Telemetry, ...] = ()
    finished: bool = False
    dead: bool = False  # the process is gone
    silent_s: float = 0.0  # for how long it has not answered
    error: AlrayError | None = None
    detail: str = field(default="", repr=False)  # traceback, for the log
