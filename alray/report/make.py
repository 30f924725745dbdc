"""The report of a run: `report.html` and, where there is none yet, `tensorboard/` in its folder."""

from __future__ import annotations

from alray.core.run_folder.records import replace_file
from alray.core.storage.location import Location, require_no_links
from alray.report.folder import read_run

PAGE = "report.html"


def make_report(run_dir: Location, *, files: bool = False) -> Location:
    """Write the report of a run into its folder and return the path of `report.html`.

    An earlier report is replaced. The run may still be going on, or it may have been interrupted or failed; figures
    that do not exist yet are shown as not measured.

    Args:
        files: also the folders `figures` and `tables`, which takes a second longer; the page has the same in itself.

    Raises:
        CheckpointError: if `run_dir` is not a run folder, or if `spec.yaml`, `plan.json` or `records.jsonl` is missing
            or damaged.
    """
    from alray.report.figure import write_exhibits
    from alray.report.run_page import RunReport
    from alray.report.trackers.tensorboard import write_tensorboard

    if files:  # another user may have made the folder; at the end of a run its lock has asked this
        require_no_links(run_dir)
    run = read_run(run_dir)
    write_tensorboard(run.effective_records, run_dir / "tensorboard")
    page = run_dir / PAGE
    report = RunReport(run)
    replace_file(page, report.page())
    if files:
        write_exhibits(report.exhibits, run_dir)
    return page
