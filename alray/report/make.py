"""The report of a run: `report.html`, `timeline.json` and `tensorboard/` in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from alray.records import Summary, replace_file
from alray.report.folder import read_run
from alray.report.run_page import run_page
from alray.report.summary import write_summary
from alray.report.tensorboard import write_tensorboard
from alray.report.timeline import write_timeline

_PAGE = "report.html"


def conclude(run_dir: Path, *ended: Any, pages: bool, **facts: Any) -> Summary:
    """Write `summary.json` of a run that ended, and its report if `pages`; return the summary.

    ended, facts: as for `write_summary`.
    """
    summary = write_summary(run_dir, *ended, page=run_dir / _PAGE if pages else None, **facts)
    if pages:
        make_report(run_dir)
    return summary


def make_report(run_dir: Path) -> Path:
    """Write the report of a run into its folder and return the path of `report.html`.

    An earlier report is replaced. The run may still be going on, or it may have been interrupted or failed; figures
    that do not exist yet are shown as not measured. Raises CheckpointError if `run_dir` is not a run folder, or if
    `spec.yaml`, `plan.json` or `records.jsonl` is missing or damaged.
    """
    run = read_run(run_dir)
    write_timeline(run, run_dir / "timeline.json")
    write_tensorboard(run.kept, run_dir / "tensorboard", stages=run.plan.stages)
    page = run_dir / _PAGE
    replace_file(page, run_page(run))
    return page
