"""The report of a run: `report.html`, `timeline.json` and, where there is none yet, `tensorboard/` in its folder."""

from __future__ import annotations

from pathlib import Path

from alray.records import replace_file
from alray.report.folder import read_run
from alray.report.run_page import run_page
from alray.report.tensorboard import write_tensorboard
from alray.report.timeline import write_timeline


def make_report(run_dir: Path) -> Path:
    """Write the report of a run into its folder and return the path of `report.html`.

    An earlier report is replaced. The run may still be going on, or it may have been interrupted or failed; figures
    that do not exist yet are shown as not measured. Raises CheckpointError if `run_dir` is not a run folder, or if
    `spec.yaml`, `plan.json` or `records.jsonl` is missing or damaged.
    """
    run = read_run(run_dir)
    write_timeline(run, run_dir / "timeline.json")
    write_tensorboard(run.kept, run_dir / "tensorboard")
    page = run_dir / "report.html"
    replace_file(page, run_page(run))
    return page
