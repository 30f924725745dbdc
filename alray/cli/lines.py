"""Progress as plain lines, for where standard error is a file or a pipe."""

from __future__ import annotations

import time
from typing import TextIO

from alray.cli.display import Display, accuracies_text, progress_text
from alray.cli.interrupts import Interrupts
from alray.cli.progress import Progress
from alray.records import EvaluationRecord, Record
from alray.report.text import share

_EVERY_S = 5.0


class PlainLines(Display):
    """A line at each evaluation, and between them at most one every five seconds."""

    def __init__(self, stream: TextIO, interrupts: Interrupts) -> None:
        super().__init__(interrupts)
        self._stream = stream
        self._last_s = time.monotonic()
        self._shown_step = 0

    def note(self, message: str) -> None:
        self._stream.write(message + "\n")
        self._stream.flush()

    def close(self) -> None:
        """There is nothing to put back."""

    def _changed(self, progress: Progress, record: Record) -> None:
        if isinstance(record, EvaluationRecord):
            self.note(accuracies_text(progress) or "")
            self._show(progress)

    def _refresh(self, progress: Progress) -> None:
        if time.monotonic() - self._last_s >= _EVERY_S and progress.step > self._shown_step:
            self._show(progress)

    def _show(self, progress: Progress) -> None:
        self._last_s, self._shown_step = time.monotonic(), progress.step
        self.note(f"  {progress_text(progress)}{_computing(progress)}{_losses(progress)}")


def _computing(progress: Progress) -> str:
    shares = [share(value) for value in progress.computing.values()]
    return f"; stages computing {', '.join(shares)}" if shares else ""


def _losses(progress: Progress) -> str:
    """Loss name by loss name, its values in the order of the components."""
    by_name: dict[str, list[str]] = {}
    for losses in progress.losses.values():
        for name, value in losses.items():
            by_name.setdefault(name, []).append(f"{value:.3g}")
    return "".join(f"; {name} {' '.join(values)}" for name, values in by_name.items())
