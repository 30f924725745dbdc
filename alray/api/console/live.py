"""Progress on a terminal: a few lines that are redrawn while the run is running."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TextIO

import rich.table
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from alray.api.console.display import Display, accuracies_text
from alray.api.console.interrupts import Interrupts
from alray.api.console.layout import Page, rich_table
from alray.core.signal_mask import blocked
from alray.report.progress import Progress, progress_text
from alray.report.table import Table
from alray.report.text import share

_BAR_WIDTH = 60


class LiveDisplay(Display):
    """Notes stay. The lines below them are redrawn and disappear at the end of the run.

    Until the first mini-batch a thread redraws them, so that the clock moves; after it, every poll does.
    """

    def __init__(self, stream: TextIO, interrupts: Interrupts, began_s: float | None = None) -> None:
        super().__init__(interrupts, began_s)
        self._stream = stream
        self._console = Console(file=stream, highlight=False)
        self._what = ""
        self._live = self._lines(
            lambda: Text(self._after(self._what), no_wrap=True, overflow="ellipsis"), auto_refresh=True
        )

    def _lines(self, draw: Callable[[], RenderableType], *, auto_refresh: bool) -> Live:
        # The standard streams are left alone, because a run in this process redirects them to its logs.
        return Live(
            get_renderable=draw,
            console=self._console,
            auto_refresh=auto_refresh,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def doing(self, what: str) -> None:
        self._what = what
        with blocked(signal.SIGTERM):  # for the thread that redraws the lines
            self._live.start()
        self._live.refresh()

    def note(self, message: str) -> None:
        shown = Page.of(self._stream).sentence(message)
        self._console.print(Text.from_ansi(shown), soft_wrap=True)

    def clear(self) -> None:
        self._live.stop()

    def close(self) -> None:
        self._live.stop()

    def _refresh(self, progress: Progress) -> None:
        if not progress.step:
            return
        if self._live.auto_refresh or not self._live.is_started:
            # A thread that redraws would read the progress while it changes. Lines that were cleared begin anew, below
            # what was printed meanwhile.
            self._live.stop()
            self._live = self._lines(lambda: frame(progress, self._console.width), auto_refresh=False)
            self._live.start()
        self._live.refresh()


def frame(progress: Progress, width: int) -> RenderableType:
    """The lines to draw: progress, speed, losses per component, and the share of time in which each stage computes."""
    page = Page(width)
    parts: list[RenderableType] = []
    if progress.plan.total_steps is not None:
        bar = rich.table.Table.grid()  # a ProgressBar by itself does not end its line
        bar.add_row(ProgressBar(total=progress.plan.total_steps, completed=progress.step, width=min(_BAR_WIDTH, width)))
        parts.append(bar)
    parts.append(Text(page.sentence(progress_text(progress))))
    if progress.losses:
        parts.append(rich_table(_table(progress)))
    if progress.evaluation is not None:
        parts.append(Text(page.sentence(accuracies_text(progress.evaluation)), style="bold"))
    return Group(*parts)


def _table(progress: Progress) -> Table:
    losses, computing = progress.losses, progress.computing
    names = list(dict.fromkeys(name for own in losses.values() for name in own))
    rows = []
    for stage in progress.plan.stage_plans:
        for component in stage.components:
            first = component == stage.first
            values = losses.get(component, {})
            rows.append(
                (
                    str(stage.stage) if first else "",
                    share(computing.get(stage.stage)) if first else "",
                    str(component),
                    *(f"{values[name]:.4g}" if name in values else "" for name in names),
                )
            )
    return Table(("stage", "computing", "component", *names), tuple(rows))
