"""A run folder in, its report out: `report.html`, `timeline.json` and `tensorboard/` beside the records."""

from __future__ import annotations

from pathlib import Path

from alray.report.folder import read_run
from alray.report.page import write_html
from alray.report.tensorboard import write_tensorboard
from alray.report.timeline import write_timeline


def make_report(run_dir: Path) -> Path:
    """Write the report of a run into its folder and return the path of `report.html`.

    Works on a run that goes on, was interrupted or failed: what is not there yet is shown as not measured.
    A report that was there is replaced. Raises `CheckpointError` where `run_dir` is no run folder, or where
    `spec.yaml`, `plan.json` or `records.jsonl` is missing or damaged.
    """
    run = read_run(run_dir)
    write_timeline(run, run_dir / "timeline.json")
    write_tensorboard(run.kept, run_dir / "tensorboard", stages=run.plan.stages)
    return write_html(run, run_dir / "report.html")
