"""Follow a run and show it on a page, until it ends."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from alray.core.run_folder.records import Summary
from alray.core.storage.location import modified_s
from alray.report.live.board import Board
from alray.report.live.following import Following, RunState
from alray.report.live.page import frame, pieces_of
from alray.report.live.server import Door, serving
from alray.report.make import PAGE
from alray.report.text import seconds

_EVERY_S, _EVERY_OF_OBJECTS_S = 1.0, 5.0
"""Seconds between two looks at the run folder. Each look at object storage is a request."""
_SHARE = 0.05
"""The share of one processor that making figures may take: the larger a run, the less often they are made."""
_LAST_S = 5.0
"""How long the end waits for the report of the run, and then for the pages."""

_ENDINGS: dict[RunState, str] = {
    "finished": "The run has finished.",
    "interrupted": "The run was interrupted. `alray resume` continues from its last checkpoint.",
}


def watch(following: Following, door: Door, board: Board) -> None:
    """Show a run on a page until it has ended. The last figures are those of its summary."""
    with serving(door, frame(following.path), board):
        with ExitStack() as leaving:  # whatever ends this before the run ends, such as Ctrl-C
            leaving.callback(board.end, _LAST_S, said="Nobody watches this run any longer: `alray watch` has ended.")
            _follow(following, board)
            leaving.pop_all()
        report = _report(following)
        if following.run is not None:
            board.show(pieces_of(following))
        board.end(_LAST_S, said=ending(following), report=report, path=str(following.path / PAGE))


def ending(following: Following) -> str:
    """How a run ended, in a sentence or two."""
    if following.state == "failed" and following.run is not None and following.run.summary is not None:
        return f"The run failed: {following.run.summary.failures[-1].message}"
    if following.state in _ENDINGS:
        return _ENDINGS[following.state]
    silent = f"It wrote nothing for {seconds(following.silent_s)}"
    why = "Its command ended without a summary" if following.is_gone else silent
    if following.run is None:
        return f"{why}: the run was killed, or could not begin."
    return f"{why}: the run was killed. `alray resume` continues from its last checkpoint."


def _follow(following: Following, board: Board) -> None:
    """Show what the run writes until it has ended. Figures are made only for pages that are open."""
    every_s = _EVERY_S if isinstance(following.path, Path) else _EVERY_OF_OBJECTS_S
    unseen, again_s = False, 0.0
    while not following.has_ended:
        unseen = following.read() or unseen
        if unseen and board.has_readers and time.monotonic() >= again_s:
            began_s, spent_s = time.monotonic(), time.process_time()
            board.show(pieces_of(following))
            unseen, again_s = False, began_s + (time.process_time() - spent_s) / _SHARE
        board.wake.wait(every_s)
        board.wake.clear()
    following.read()


def _report(following: Following) -> str | None:
    """The report that a run writes after its summary; None if it makes none, or ends before it."""
    summary: Summary | None = following.run.summary if following.run is not None else None
    if summary is None or summary.report is None:
        return None
    page, until_s = following.path / PAGE, time.monotonic() + _LAST_S
    while not page.is_file() or modified_s(page) < modified_s(following.path / "summary.json"):
        if time.monotonic() > until_s:
            return None
        time.sleep(0.2)
    return page.read_text(encoding="utf-8")
