"""From the stages' reports to records: losses merged per mini-batch, checkpoints completed when every part is there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from alray.errors import RunError
from alray.plan.plan import Plan
from alray.records import (
    CheckpointRecord,
    EventRecord,
    PlanRecord,
    Record,
    StepRecord,
    Writer,
)
from alray.run.folder import prune, write_manifest
from alray.stage.assignment import DataFacts
from alray.stage.telemetry import CheckpointPart, Losses, Telemetry


class Recorder:
    """Writes `records.jsonl` and the manifests of one run."""

    def __init__(
        self,
        run_dir: Path,
        *,
        facts: DataFacts,
        batch_size: int,
        keep: int,
        environment: dict[str, Any],
        started_wall_s: float,
        observe: Callable[[Record], None],
    ) -> None:
        """observe: hears every record as it is written (progress display)."""
        self.run_dir = run_dir
        self._writer = Writer(run_dir / "records.jsonl")
        self._facts, self._batch_size, self._keep = facts, batch_size, keep
        self._environment, self._started_wall_s = environment, started_wall_s
        self._observe = observe
        self._plan: Plan | None = None
        self._losses: dict[int, list[tuple[int, Losses]]] = {}  # by mini-batch, each with its replica
        self._parts: dict[int, list[CheckpointPart]] = {}
        self.last_checkpoint: int | None = None

    def begin(self, plan: Plan, step: int) -> None:
        """A new attempt with this plan, after `step` mini-batches: what earlier ones left half told is void."""
        self._plan = plan
        self._losses.clear()
        self._parts.clear()
        self.write(PlanRecord(**self._place(step), plan=plan.as_json()))

    def event(
        self,
        event: Literal["started", "resumed", "failure", "interrupted", "finished", "failed", "warning"],
        message: str,
        *,
        step: int,
        stage: int | None = None,
    ) -> None:
        self.write(EventRecord(**self._place(step), event=event, message=message, stage=stage))

    def write(self, record: Record) -> None:
        self._writer.write(record)
        self._observe(record)

    def take(self, reports: Sequence[Telemetry], *, replica: int) -> None:
        """Record what a stage reported."""
        for report in reports:
            if isinstance(report, Losses):
                self._take_losses(report, replica)
            elif isinstance(report, CheckpointPart):
                self._take_part(report)
            else:
                self.write(report)

    def _take_losses(self, report: Losses, replica: int) -> None:
        """A mini-batch's losses once every stage has told its own: over the replicas, the mean over all samples."""
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
                total = losses.setdefault(index, dict.fromkeys(named, 0.0))
                for name, value in named.items():
                    total[name] += weight * value
        place = {**self._place(report.step), "time_s": max(each.time_s for _, each in heard)}
        self.write(StepRecord(**place, losses=dict(sorted(losses.items())), lr=report.lr))

    def _take_part(self, report: CheckpointPart) -> None:
        """A checkpoint once every stage of every replica has written its part.

        Raises RunError where replicas do not hold the same parameters.
        """
        assert self._plan is not None
        parts = self._parts.setdefault(report.step, [])
        parts.append(report)
        if len(parts) < self._plan.stages * self._plan.replicas:
            return
        del self._parts[report.step]
        _require_same_parameters(parts, report.step)
        files = [file for part in parts for file in part.files]
        place = self._place(report.step)
        folder = write_manifest(
            self.run_dir,
            step=report.step,
            epoch=place["epoch"],
            samples=place["samples"],
            partition=self._plan.partition,
            files=files,
            environment=self._environment,
            shares=report.shares,
        )
        prune(self.run_dir, self._keep)
        self.last_checkpoint = report.step
        self.write(
            CheckpointRecord(
                **place,
                path=str(folder.relative_to(self.run_dir)),
                bytes=sum(entry.bytes for entry in files),
                duration_s=max(part.duration_s for part in parts),
            )
        )

    def _place(self, step: int) -> dict[str, Any]:
        return {
            "time_s": time.time() - self._started_wall_s,
            "step": step,
            "epoch": step / self._facts.steps_per_epoch,
            "samples": self._facts.samples(step, self._batch_size),
        }

    def close(self) -> None:
        self._writer.close()


def _require_same_parameters(parts: Sequence[CheckpointPart], step: int) -> None:
    found: dict[int, str] = {}
    for part in parts:
        for index, sha256 in part.parameters:
            if found.setdefault(index, sha256) != sha256:
                raise RunError(
                    f"the replicas of component {index} do not hold the same parameters after mini-batch {step}",
                    mend="a block must not change its parameters but by its gradients; else report this as a fault",
                )
