"""The progress of a run as a person sees it: what every way to show it shares, plain lines for a file or a pipe, and
which way a stream gets."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TextIO

from alray.api.console.closed_output import lasting
from alray.api.console.interrupts import Interrupts
from alray.api.console.layout import Page
from alray.core.counting import counted
from alray.core.metric import ACCURACY
from alray.core.run_folder.metrics import METRICS
from alray.core.run_folder.records import EvaluationRecord, EventRecord, Record
from alray.planning.prediction.plan import Plan
from alray.report.progress import Progress, computing_text, progress_text
from alray.report.text import score, seconds, share
from alray.runtime.observer import Observer
from alray.runtime.stage.telemetry import StageStatus

_EVERY_S = 5.0  # between two lines of `PlainLines`


class Pace:
    """Limits how often something is shown: a few times a second a driver has news, and a person need not see all."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._last_s = -math.inf

    def take_turn(self) -> bool:
        """Whether it was not shown in the last `every_s` seconds. It then counts as shown."""
        if time.monotonic() - self._last_s < self._every_s:
            return False
        self.shown()
        return True

    def shown(self) -> None:
        """It is shown now."""
        self._last_s = time.monotonic()


class Display(Observer, ABC):
    """Shows the progress of a run to a person. Used as a context manager, it leaves the terminal as it found it."""

    def __init__(self, interrupts: Interrupts, began_s: float | None = None) -> None:
        """
        Args:
            began_s: when the command began, by `time.monotonic()`; None: now.
        """
        self._interrupts = interrupts
        self._began_s = time.monotonic() if began_s is None else began_s
        self._progress: Progress | None = None
        self._heard_any = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def planned(self, plan: Plan) -> None:
        """Show the plan. From now on a driver reads the requests to stop."""
        self._interrupts.count_from_now()
        self._progress = Progress(plan)
        self.note(plan_line(plan))
        if plan.too_large is not None:
            self.note(plan.too_large)

    def record(self, record: Record) -> None:
        """Update the progress with a record, and show the record at once if it is an important event."""
        self._interrupts.hold()
        if self._progress is None:
            return  # a run whose planning fails has a record of that alone
        if isinstance(record, EventRecord) and self._shows(record.event):
            self.note(record.message)
        self._heard_any = True
        self._progress.take(record)
        self._changed(self._progress, record)

    def statuses(self, statuses: Sequence[StageStatus]) -> None:
        """The driver calls this several times a second."""
        self._interrupts.hold()
        if self._progress is not None:
            self._refresh(self._progress)

    @abstractmethod
    def doing(self, what: str) -> None:
        """Show what the command does now."""

    @abstractmethod
    def note(self, message: str) -> None:
        """Show a line that stays visible."""

    def clear(self) -> None:  # lines stay
        """Take away what is drawn again and again, until the next poll: what a callback prints then stays visible."""

    def close(self) -> None:  # lines need no end
        """Leave the terminal as it was before."""

    def _changed(self, progress: Progress, record: Record) -> None:
        """Called after a record has changed the progress."""

    @abstractmethod
    def _refresh(self, progress: Progress) -> None:
        """Called several times a second."""

    def _after(self, what: str) -> str:
        """Return the current activity with its time: `3.2 s: opening the data`."""
        return f"{time.monotonic() - self._began_s:.1f} s: {what}"

    def _shows(self, event: str) -> bool:
        """Whether an event is shown: a warning, and `resumed` if it is the first record of this command.

        `summary_rows` shows how a run ends. After a failure the driver writes a note itself, which says more than the
        event `resumed` that follows.
        """
        return event == "warning" or (event == "resumed" and not self._heard_any)


class PlainLines(Display):
    """Progress as plain lines, for a file or a pipe: one at each evaluation, and one every five seconds."""

    def __init__(self, stream: TextIO, interrupts: Interrupts, began_s: float | None = None) -> None:
        super().__init__(interrupts, began_s)
        self._stream = stream
        self._pace = Pace(_EVERY_S)
        self._pace.shown()
        self._shown_step = 0

    def doing(self, what: str) -> None:
        self.note(self._after(what))

    def note(self, message: str) -> None:
        self._stream.write(Page.of(self._stream).sentence(message) + "\n")
        self._stream.flush()

    def _changed(self, progress: Progress, record: Record) -> None:
        if isinstance(record, EvaluationRecord):
            self.note(accuracies_text(record))

    def _refresh(self, progress: Progress) -> None:
        if progress.step != self._shown_step and self._pace.take_turn():
            self._shown_step = progress.step
            self.note(f"  {'; '.join(state_lines(progress))}")


def plan_line(plan: Plan) -> str:
    """The plan in one line."""
    bubble = "no bubble, for they take turns" if plan.in_turns else f"bubble {share(plan.predicted_bubble)}"
    return (
        f"{counted(plan.stages, 'stage')} {list(plan.partition)}, {plan.schedule_name}: predicted "
        f"{seconds(plan.predicted_step_time_s)} a mini-batch, {bubble}"
    )


def accuracies_text(evaluation: EvaluationRecord) -> str:
    """The accuracies of an evaluation in one line; the metric of another task with its name."""
    splits = [(name, getattr(evaluation, name)) for name in ("train", "validation", "test")]
    parts = [f"{name} {score(value)}" for name, value in splits if value is not None]
    name = "validation" if evaluation.validation is not None else "test"
    depths = [getattr(entry, name) for entry in evaluation.per_depth]
    if len(depths) > 1 and all(value is not None for value in depths):
        parts.append(
            f"{name} by depth {' '.join(f'{value:.3f}' if abs(value) < 1000 else score(value) for value in depths)}"
        )
    metric = METRICS[evaluation.metric]
    named = "" if metric == ACCURACY or not parts else f"{metric.title} "
    return f"after mini-batch {evaluation.step:,}: {named}" + ", ".join(parts or ["nothing was evaluated"])


def state_lines(progress: Progress) -> list[str]:
    """Progress, the share of time in which each stage computes, and each loss with its values in the order of the
    components. Before the first mini-batch there is none."""
    if not progress.step:
        return []
    by_name: dict[str, list[str]] = {}
    for losses in progress.losses.values():
        for name, value in losses.items():
            by_name.setdefault(name, []).append(f"{value:.3g}")
    computing = [computing_text(progress)] if progress.computing else []
    return [progress_text(progress), *computing, *(f"{name} {' '.join(values)}" for name, values in by_name.items())]


def terminal_display(stream: TextIO, interrupts: Interrupts, began_s: float | None = None) -> Display:
    """The display for a terminal, or for a file or a pipe.

    Args:
        began_s: as for `Display`.
    """
    stream = lasting(stream)
    if stream.isatty():
        from alray.api.console.live import LiveDisplay  # with it comes rich

        return LiveDisplay(stream, interrupts, began_s)
    return PlainLines(stream, interrupts, began_s)
