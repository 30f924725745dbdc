"""What is shown on standard error while a run goes on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType

from alray.cli.interrupts import Interrupts
from alray.cli.progress import Progress
from alray.cli.rows import counted
from alray.plan.plan import Plan
from alray.records import EventRecord, Record
from alray.report.text import seconds, share
from alray.stage.telemetry import StageStatus


class Display(ABC):
    """Hears a run (it is the run's `Observer`) and shows it; a context, so that the terminal is left as it was."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self._progress: Progress | None = None
        self._heard_any = False

    def __enter__(self) -> Display:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def planned(self, plan: Plan) -> None:
        """Show the plan in one line. From here on there is a driver that hears a request to stop."""
        self._interrupts.count_from_now()
        self._progress = Progress(plan)
        self.note(plan_line(plan))

    def record(self, record: Record) -> None:
        """Take a record in, and show it where it is one to be shown at once."""
        self._interrupts.hold()
        if self._progress is None:
            return
        if isinstance(record, EventRecord) and self._is_told(record.event):
            self.note(record.message)
        self._heard_any = True
        self._progress.take(record)
        self._changed(self._progress, record)

    def statuses(self, statuses: Sequence[StageStatus]) -> None:
        """Refresh what is shown."""
        self._interrupts.hold()
        if self._progress is not None:
            self._refresh(self._progress)

    @abstractmethod
    def note(self, message: str) -> None:
        """Show one line that stays."""

    @abstractmethod
    def close(self) -> None:
        """Leave the terminal as it was."""

    @abstractmethod
    def _changed(self, progress: Progress, record: Record) -> None:
        """Hear that this record changed the progress."""

    @abstractmethod
    def _refresh(self, progress: Progress) -> None:
        """Hear that time has passed."""

    def _is_told(self, event: str) -> bool:
        """Whether an event is shown. How a run ends is told at its end; of a failure the driver's own note tells
        more than the `resumed` that follows it, which is shown where it begins the records of this command."""
        return event == "warning" or (event == "resumed" and not self._heard_any)


def plan_line(plan: Plan) -> str:
    """The plan in one line."""
    return (
        f"{counted(plan.stages, 'stage')} {list(plan.partition)}, {plan.schedule}: predicted "
        f"{seconds(plan.predicted_step_time_s)} a mini-batch, bubble {share(plan.predicted_bubble)}"
    )


def progress_text(progress: Progress) -> str:
    """Where the run is and how fast: `epoch 3.2 of 20, mini-batch 64 of 400, 1,650 samples/s, 4.1 s left`."""
    plan = progress.plan
    parts = [f"epoch {progress.epoch:.2f}", f"mini-batch {progress.step:,}"]
    if plan.total_steps is not None and progress.num_epochs is not None:
        parts = [
            f"epoch {progress.epoch:.2f} of {progress.num_epochs:g}",
            f"mini-batch {progress.step:,} of {plan.total_steps:,}",
        ]
    if progress.samples_per_s is not None:
        parts.append(f"{progress.samples_per_s:,.0f} samples/s")
    if progress.left_s is not None:
        parts.append(f"{seconds(progress.left_s)} left")
    return ", ".join(parts)


def accuracies_text(progress: Progress) -> str | None:
    """The last evaluation in one line; None before there was one."""
    last = progress.evaluation
    if last is None:
        return None
    splits = [(name, getattr(last, name)) for name in ("train", "validation", "test")]
    parts = [f"{name} {value:.4f}" for name, value in splits if value is not None]
    name = "validation" if last.validation is not None else "test"
    depths = [getattr(entry, name) for entry in last.per_depth]
    if len(depths) > 1 and all(value is not None for value in depths):
        parts.append(f"{name} by depth {' '.join(f'{value:.3f}' for value in depths)}")
    return f"after mini-batch {last.step:,}: " + ", ".join(parts or ["nothing was evaluated"])
