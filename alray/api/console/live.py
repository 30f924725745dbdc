"""Progress on a terminal: a few lines that are redrawn while the run is running."""

from __future__ import annotations

import signal
from typing import TextIO

import rich.table
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from alray.api.console.display import Display, accuracies_text, state_lines
from alray.api.console.interrupts import Interrupts
from alray.api.console.layout import Page
from alray.core.signal_mask import blocked
from alray.report.progress import Progress

_BAR_WIDTH = 60


class LiveDisplay(Display):
    """Notes stay. The lines below them are redrawn, by a thread, and disappear at the end of the run."""

    def __init__(self, stream: TextIO, interrupts: Interrupts, began_s: float | None = None) -> None:
        super().__init__(interrupts, began_s)
        self._stream = stream
        self._console = Console(file=stream, highlight=False)
        self._what = ""
        self._frame: RenderableType | None = None  # since the first mini-batch
        self._live: Live | None = None

    def doing(self, what: str) -> None:
        self._what = what
        self._draw()

    def note(self, message: str) -> None:
        shown = Page.of(self._stream).sentence(message)
        self._console.print(Text.from_ansi(shown), soft_wrap=True)

    def clear(self) -> None:
        self.close()

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _refresh(self, progress: Progress) -> None:
        if progress.step:
            self._frame = frame(progress, self._console.width)
            self._draw()

    def _draw(self) -> None:
        if self._live is None:
            # The standard streams are left alone, because a run in this process redirects them to its logs.
            self._live = Live(
                get_renderable=lambda: self._frame or Text(self._after(self._what), no_wrap=True, overflow="ellipsis"),
                console=self._console,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            with blocked(signal.SIGTERM):  # for the thread that redraws the lines
                self._live.start()
        self._live.refresh()


def frame(progress: Progress, width: int) -> RenderableType:
    """What is drawn: a bar, `state_lines`, and the last accuracies."""
    parts: list[RenderableType] = []
    if progress.plan.total_steps is not None:
        bar = rich.table.Table.grid()  # a ProgressBar by itself does not end its line
        bar.add_row(ProgressBar(total=progress.plan.total_steps, completed=progress.step, width=min(_BAR_WIDTH, width)))
        parts.append(bar)
    parts += map(Text, state_lines(progress))
    if progress.evaluation is not None:
        parts.append(Text(accuracies_text(progress.evaluation), style="bold"))
    return Group(*parts)
