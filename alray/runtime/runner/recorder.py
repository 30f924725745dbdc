"""Turn what the stages report into records.

The losses of a mini-batch are merged into one record. A checkpoint is completed when every stage has written its part.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Self

from alray.core.errors import AlrayError, ReplicasDiffer
from alray.core.run_folder.records import (
    CheckpointRecord,
    EventRecord,
    PlanRecord,
    Record,
    StepRecord,
    Writer,
)
from alray.core.run_folder.store import prune, require_own, step_folder, write_manifest
from alray.core.storage.location import Location
from alray.planning.prediction.plan import Plan
from alray.runtime.stage.assignment import Start, start_from
from alray.runtime.stage.telemetry import CheckpointPart, Losses, Telemetry
from alray.runtime.workload import DataFacts


@dataclass
class Recorder:
    """Writes `records.jsonl` and the checkpoints' manifests of one run. A context manager, which closes the records.

    Attributes:
        keep: number of checkpoints to keep.
        environment: goes into every manifest; with the `engine`.
        started_wall_s: `time.time()` when the run began, less the time it stood still.
        observers: are called with every record as it comes.
        token: with which the run folder is marked (`alray.core.run_folder.store.mark`).
    """

    run_dir: Location
    facts: DataFacts
    batch_size: int
    keep: int
    environment: dict[str, Any]
    started_wall_s: float
    observers: Sequence[Callable[[Record], None]]
    token: str

    def __post_init__(self) -> None:
        self._writer = Writer(self.run_dir / "records.jsonl", require=lambda: require_own(self.run_dir, self.token))
        self.last = Start()
        """The last checkpoint. The folder is not asked for it: a client of NFS may have a list that is a minute old."""
        self.taken_processors: float | None = None
        """Those that other programs took from the stages, which the event at the end says; None: not known."""
        self._plan: Plan | None = None
        self._losses: dict[int, list[tuple[int, Losses]]] = {}  # by mini-batch, each with its replica
        self._parts: dict[tuple[int, bool], list[CheckpointPart]] = {}
        """The parts of checkpoints that are not complete yet. After the evaluation that ends a run a second, final one
        may follow the first after the same mini-batch."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, raised: object, *_: object) -> None:
        with suppress(OSError, AlrayError) if raised else nullcontext():  # what failed first is the cause to report
            self.close()

    def began(self, plan: Plan, start: Start, *, again: bool) -> None:
        """Record that the run starts with this plan, or continues `again` from a checkpoint."""
        self.last = start
        if again:
            self.event("resumed", f"continuing from mini-batch {start.step}", step=start.step)
        else:
            self.event(
                "started", f"{plan.method}, {plan.schedule_name}, partition {list(plan.partition)}", step=start.step
            )

    def begin(self, plan: Plan, step: int) -> None:
        """Begin an attempt with this plan after `step` mini-batches. Incomplete parts of earlier ones are dropped."""
        self._plan = plan
        self._losses.clear()
        self._parts.clear()
        self.write(PlanRecord(**self._position(step), plan=plan.as_json(), engine=self.environment.get("engine")))

    def event(
        self,
        event: Literal["started", "resumed", "failure", "interrupted", "finished", "failed", "warning"],
        message: str,
        *,
        step: int,
        stage: int | None = None,
    ) -> None:
        date = datetime.now(UTC).isoformat(timespec="milliseconds")
        taken = self.taken_processors if event in ("interrupted", "finished", "failed") else None
        self.write(
            EventRecord(
                **self._position(step), event=event, message=message, stage=stage, date=date, taken_processors=taken
            )
        )

    def write(self, record: Record) -> None:
        self._writer.write(record)
        for observe in self.observers:
            observe(record)

    def take(self, reports: Sequence[Telemetry], *, replica: int) -> None:
        """Record what a stage reported.

        Raises ReplicasDiffer if a checkpoint shows that, and RunError if another process continues this run.
        """
        for report in reports:
            if isinstance(report, Losses):
                self._take_losses(report, replica)
            elif isinstance(report, CheckpointPart):
                self._take_part(report)
            else:
                self.write(report)

    def _take_losses(self, report: Losses, replica: int) -> None:
        """Write the losses of a mini-batch once every stage has reported its own.

        Over replicas this is the mean over all samples, so each replica counts by its number of samples. A replica that
        does not have a loss counts as 0, which is what its gradients add to the mean.
        """
        assert self._plan is not None
        heard = self._losses.setdefault(report.step, [])
        heard.append((replica, report))
        if len(heard) < self._plan.stages * self._plan.replicas:
            return
        del self._losses[report.step]
        samples = sum({replica: each.samples for replica, each in heard}.values())
        losses: dict[int, dict[str, float]] = {}
        for _, each in heard:
            weight = each.samples / samples if self._plan.replicas > 1 else 1.0
            for index, named in each.losses.items():
                total = losses.setdefault(index, {})
                for name, value in named.items():
                    total[name] = total.get(name, 0.0) + weight * value
        position = {**self._position(report.step), "time_s": max(each.time_s for _, each in heard)}
        self.write(StepRecord(**position, losses=dict(sorted(losses.items())), lr=report.lr))

    def _take_part(self, report: CheckpointPart) -> None:
        """Complete a checkpoint once every stage of every replica has written its part.

        Raises ReplicasDiffer, and RunError if another process continues this run.
        """
        assert self._plan is not None
        checkpoint = (report.step, report.final)
        parts = self._parts.setdefault(checkpoint, [])
        parts.append(report)
        if len(parts) < self._plan.stages * self._plan.replicas:
            return
        del self._parts[checkpoint]
        _require_same_parameters(parts, report.step)
        files = [file for part in parts for file in part.files]
        position = self._position(report.step)
        require_own(self.run_dir, self.token)
        self._writer.sync()  # no record is missing from before a checkpoint
        manifest = write_manifest(
            self.run_dir,
            step=report.step,
            epoch=position["epoch"],
            samples=position["samples"],
            partition=self._plan.partition,
            files=files,
            environment=self.environment,
            shares=report.shares,
            standing=next((part.standing for part in parts if part.standing is not None), None),
            data=self.facts.identity,
        )
        self.last = start_from(self.run_dir, manifest)
        self.write(
            CheckpointRecord(
                **position,
                path=f"checkpoints/{step_folder(report.step)}",
                bytes=sum(entry.bytes for entry in files),
                duration_s=max(part.duration_s for part in parts),
            )
        )
        # Older checkpoints may be deleted only if no other process has begun to continue this run meanwhile. One that
        # begins after this check finds the checkpoint that was just written.
        require_own(self.run_dir, self.token)
        prune(self.run_dir, self.keep, manifest)

    def _position(self, step: int) -> dict[str, Any]:
        return {"time_s": time.time() - self.started_wall_s, **self.facts.position(step, self.batch_size)}

    def close(self) -> None:
        self._writer.close()


def _require_same_parameters(parts: Sequence[CheckpointPart], step: int) -> None:
    """Raise ReplicasDiffer if replicas hold other parameters of a component."""
    found: dict[int, str] = {}
    for part in parts:
        for index, sha256 in part.parameters:
            if found.setdefault(index, sha256) != sha256:
                raise ReplicasDiffer(
                    f"the replicas of component {index} do not hold the same parameters after mini-batch {step}",
                    hint="give all replicas devices of one model, for others may round differently; a block may change "
                    "its parameters only through gradients, and an optimizer draw only from the generators that alray "
                    "seeds: if yours do, report this as a bug",
                )
