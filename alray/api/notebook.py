"""Runs in a notebook: one output that is drawn again while a run is running, and pages inside a cell."""

from __future__ import annotations

import html
import sys
from collections.abc import Callable, Sequence
from typing import Any

from alray.api.console.display import Display, Pace, accuracies_text, state_lines
from alray.api.console.interrupts import Interrupts
from alray.core.run_folder.records import EvaluationRecord, Record
from alray.report.progress import Progress

_EVERY_S = 0.5  # between two drawings
_HEIGHT = 640  # pixels of a page in a cell

Draw = Callable[[str], None]
"""Draws HTML in place of what was drawn before."""


def cell_output() -> Draw | None:
    """The output of the notebook's cell that is being executed; None outside a notebook.

    alray does not need IPython: where there is a notebook, it is loaded already.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is None:
        return None
    from IPython.display import HTML, display

    handle: Any = None

    def draw(text: str) -> None:
        nonlocal handle
        if handle is None:
            handle = display(HTML(text), display_id=True)
        else:
            handle.update(HTML(text))

    return draw


def preformatted(lines: Sequence[str]) -> str:
    """Lines of text as HTML."""
    text = "\n".join(lines)
    return f"<pre>{html.escape(text)}</pre>"


def framed(page: str) -> str:
    """A whole HTML page as a part of a cell's output. Its styles and scripts do not reach the notebook."""
    allowed = "allow-scripts allow-downloads allow-popups"
    return (
        f'<iframe srcdoc="{html.escape(page)}" sandbox="{allowed}" width="100%" height="{_HEIGHT}" '
        'style="border: 0"></iframe>'
    )


class NotebookDisplay(Display):
    """Notes and the state of the run, as text that is drawn again."""

    def __init__(self, draw: Draw, interrupts: Interrupts) -> None:
        super().__init__(interrupts)
        self._draw = draw
        self._notes: list[str] = []
        self._what = ""
        self._pace = Pace(_EVERY_S)

    def doing(self, what: str) -> None:
        self._what = self._after(what)
        self._show(now=True)

    def note(self, message: str) -> None:
        self._notes.append(message)
        self._show(now=True)

    def close(self) -> None:
        """Draw the end of the run."""
        self._what = ""
        self._show(now=True)

    def _changed(self, progress: Progress, record: Record) -> None:
        self._show(now=isinstance(record, EvaluationRecord))

    def _refresh(self, progress: Progress) -> None:
        self._show(now=False)

    def _show(self, *, now: bool) -> None:
        if not (self._pace.take_turn() or now):
            return
        self._pace.shown()
        lines = [] if self._progress is None else state_lines(self._progress)
        if lines and self._progress is not None and self._progress.evaluation is not None:
            lines.append(accuracies_text(self._progress.evaluation))
        self._draw(preformatted([*self._notes, *(lines or [self._what])]))
