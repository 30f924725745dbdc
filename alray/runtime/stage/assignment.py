"""The work assigned to one stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from alray.config.sections.spec import Spec
from alray.config.user_code import UserCode
from alray.core.run_folder.records import EventRecord, Standing
from alray.core.run_folder.store import standing_of
from alray.core.storage.location import Location
from alray.models.encoder import EncoderFacts
from alray.planning.prediction.plan import Plan
from alray.planning.schedules.table import SCHEDULES
from alray.runtime.stage.checkpoint import CheckpointFiles
from alray.runtime.workload import DataFacts, Position


@dataclass(frozen=True)
class Start:
    """Where a run begins or continues: after `step` mini-batches, from a checkpoint with these files."""

    step: int = 0
    files: CheckpointFiles | None = None
    shares: tuple[int, ...] = ()
    """Samples of a mini-batch each replica takes from here on, where they change during the run."""
    standing: Standing = field(default_factory=Standing)
    """The best evaluation so far, and what `stop_at` has seen."""


@dataclass(frozen=True)
class Assignment:
    """One stage's share of a run: a value that crosses the process border. `alray.runtime.stage.assemble` builds the
    stage."""

    spec: Spec
    plan: Plan
    data: DataFacts
    total_steps: int
    stage: int
    replica: int
    run_dir: Location
    code: UserCode
    started_wall_s: float
    start: Start
    encoders: tuple[EncoderFacts, ...]
    """The facts that the driver has found about the encoders. A stage need not find them again: on the meta device
    torch loads its compiler, which takes a second."""
    least_share: int = 1
    """Fewest samples of a mini-batch that a replica gets where shares change."""
    profile: tuple[range, ...] = ()
    """Mini-batches to trace, counted from 1."""
    stop_after: int | None = None
    """The run stops after so many mini-batches, as if the user had requested it."""

    @property
    def title(self) -> str:
        """The name of this stage in messages."""
        stage = f"stage {self.stage}"
        return f"{stage} of replica {self.replica}" if self.plan.replicas > 1 else stage

    @property
    def shares(self) -> tuple[int, ...]:
        """Samples of a mini-batch that each replica takes at first: those of the checkpoint if they still suit."""
        found, spec = self.start.shares, self.spec
        balances = spec.replicas.balance == "dynamic_batch_size" and len(found) == self.plan.replicas
        if balances and sum(found) == spec.data.batch_size and min(found) >= self.least_share:
            return found
        return self.plan.shares or (self.spec.data.batch_size,)

    @property
    def checkpoints(self) -> Location:
        return self.run_dir / "checkpoints"

    @property
    def trace(self) -> Location:
        """The file for the traces of `profile`. The stages of one process share that of the first."""
        stage = f"stage-{self.stage}.json"
        return self.run_dir / "profile" / (f"replica-{self.replica}-{stage}" if self.replica else stage)

    @property
    def device_kind(self) -> str:
        """The kind of device that the stage computes on, as `Resources.device_of` gives it."""
        return self.spec.resources.device_of(self.stage)

    @property
    def pipelined(self) -> bool:
        """Whether gradients travel between this stage and others."""
        return SCHEDULES[self.plan.schedule].is_pipeline and self.plan.stages > 1

    @property
    def data_parallel(self) -> bool:
        """Whether torch's DDP averages the gradients of the replicas. One replica, as is left where nodes were lost,
        has none to average."""
        return self.spec.replicas.engine == "ray_train" and self.plan.replicas > 1

    @property
    def shares_norms(self) -> bool:
        """Whether batch normalisation takes its statistics over all replicas of the stage."""
        return self.spec.replicas.sync_batch_norm and self.plan.replicas > 1

    def warning(self, message: str, step: int | None = None) -> EventRecord:
        """A record of something that the user should know and that does not end the run.

        Args:
            step: after how many mini-batches; None: where this stage starts.
        """
        now = datetime.now(UTC)
        return EventRecord(
            **self.position(self.start.step if step is None else step),
            time_s=now.timestamp() - self.started_wall_s,
            event="warning",
            message=message,
            stage=self.stage,
            replica=self.replica,
            date=now.isoformat(timespec="milliseconds"),
        )

    def samples(self, step: int) -> int:
        """Samples of mini-batch `step`, counted from 1, over all replicas."""
        batch_size = self.spec.data.batch_size
        return self.data.samples(step, batch_size) - self.data.samples(step - 1, batch_size)

    def position(self, step: int) -> Position:
        """Where a run is after `step` mini-batches, as records say it."""
        return self.data.position(step, self.spec.data.batch_size)


def start_from(run_dir: Location, manifest: dict[str, Any]) -> Start:
    """The start a checkpoint's manifest describes."""
    return Start(
        step=manifest["step"],
        files=CheckpointFiles.of(run_dir, manifest),
        shares=tuple(manifest.get("shares") or ()),
        standing=standing_of(manifest),
    )
