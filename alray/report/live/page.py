"""The page of a run in progress: the figures and tables of its report, in pieces that can be sent again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, NamedTuple

from alray import __version__
from alray.core.storage.location import Location
from alray.report.figure import Exhibit
from alray.report.html import render_live, render_part
from alray.report.live.following import Following, RunState
from alray.report.progress import progress_text
from alray.report.run_page import RunReport
from alray.report.text import seconds

Pieces = dict[str, str]
"""Each as JSON, by the name that live.js has for it: HTML, and the rows of figures."""

ROWS = "rows "
"""Before the name of a figure."""


class Live(NamedTuple):
    """How a run stands that is watched.

    Attributes:
        total: its mini-batches, if that is known.
    """

    state: RunState
    step: int
    total: int | None
    line: str


def frame(run_dir: Location) -> str:
    """The page without what changes."""
    return render_live(title=f"{run_dir.name} · alray", name=run_dir.name, folder=str(run_dir), version=__version__)


def pieces_of(following: Following) -> Pieces:
    """The pieces of the page now, for a run that has records."""
    run = following.run
    assert run is not None
    report = RunReport(run)
    shared = {"live": _live(following), **report.values}
    content = render_part("run_content.html", [_without_rows(each) for each in report.exhibits], **shared)
    html = {
        "standing": render_part("run_heading.html", (), **shared),
        "contents": render_part("contents.html", (), body=content),
        "content": content,
    }
    rows = {f"{ROWS}{figure.name}": figure.rows for exhibit in report.exhibits for figure in exhibit.figures}
    return {name: _json(value) for name, value in {**html, **rows}.items()}


def _live(following: Following) -> Live:
    run, progress = following.run, following.progress
    assert run is not None and progress is not None
    line = progress_text(progress, pace=following.state == "running")
    return Live(
        following.state,
        progress.step,
        progress.plan.total_steps,
        f"{line}; {seconds(run.records[-1].time_s)} since the start",
    )


def _without_rows(exhibit: Exhibit) -> Exhibit:
    return replace(exhibit, figures=tuple(replace(figure, rows=[]) for figure in exhibit.figures))


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
