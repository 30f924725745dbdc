"""From the stages' reports to records: losses merged per mini-batch, checkpoints completed when every part is there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

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
from alray.stage.reports import CheckpointPart, ComponentFile, Losses, Report


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
        self._losses: dict[int, tuple[int, dict[int, dict[str, float]]]] = {}
        self._parts: dict[int, tuple[int, list[ComponentFile], float]] = {}
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

    def take(self, reports: Sequence[Report], *, replica: int) -> None:
        """Record what a stage reported."""
        for report in reports:
            if isinstance(report, Losses):
                if replica == 0:
                    self._take_losses(report)
            elif isinstance(report, CheckpointPart):
                if replica == 0:
                    self._take_part(report)
            else:
                self.write(report)

    def _take_losses(self, report: Losses) -> None:
        assert self._plan is not None
        heard, losses = self._losses.pop(report.step, (0, {}))
        losses.update(report.losses)
        if heard + 1 < self._plan.stages:
            self._losses[report.step] = (heard + 1, losses)
            return
        place = {**self._place(report.step), "time_s": report.time_s}
        self.write(StepRecord(**place, losses=dict(sorted(losses.items())), lr=report.lr))

    def _take_part(self, report: CheckpointPart) -> None:
        assert self._plan is not None
        heard, files, longest_s = self._parts.pop(report.step, (0, [], 0.0))
        files.extend(report.files)
        longest_s = max(longest_s, report.duration_s)
        if heard + 1 < self._plan.stages:
            self._parts[report.step] = (heard + 1, files, longest_s)
            return
        place = self._place(report.step)
        folder = write_manifest(
            self.run_dir,
            step=report.step,
            epoch=place["epoch"],
            samples=place["samples"],
            partition=self._plan.partition,
            files=files,
            environment=self._environment,
        )
        prune(self.run_dir, self._keep)
        self.last_checkpoint = report.step
        self.write(
            CheckpointRecord(
                **place,
                path=str(folder.relative_to(self.run_dir)),
                bytes=sum(entry.bytes for entry in files),
                duration_s=longest_s,
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
