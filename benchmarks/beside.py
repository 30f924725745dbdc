"""Draw docs/two_stages.svg: Associated Learning beside backpropagation on two stages, as measured.

    python -m benchmarks.beside     about a minute

The network has eight equal components, four on each stage. All rows show the same length of time, after the first
mini-batches, in which pipelines fill and libraries load.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from alray.cli.main import execute
from alray.report.folder import read_run
from alray.report.lanes import View
from alray.report.schedule_figure import schedule_figure
from alray.report.timeline import measured_last

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "two_stages.svg"
SPEC = Path(__file__).parent / "eight.yaml"
RUNS = {
    "AL": (),
    "BP 1F1B": ("method=backpropagation", "pipeline.schedule=1f1b"),
    "BP naive": ("method=backpropagation", "pipeline.schedule=naive"),
}
FIRST, SHOWN = 8, 4
"""The mini-batch that each row begins with, and the number of mini-batches of the first run in the time drawn."""


def main() -> None:
    views: dict[str, View] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, overrides in RUNS.items():
            run_dir = Path(folder) / name
            if code := execute(["run", str(SPEC), *overrides, "--output", str(run_dir)]):
                raise SystemExit(code)
            run = read_run(run_dir)
            lanes = measured_last(run.effective_records, run.plan)
            begins = lanes[0].begins()
            shown_s = next(
                (view.end_s - view.start_s for view in views.values()), begins[FIRST + SHOWN] - begins[FIRST]
            )
            views[name] = View(lanes, begins[FIRST], begins[FIRST] + shown_s)
    figure = replace(
        schedule_figure(views, run.plan),
        title="Two stages in the same time, as measured",
        description="What two stages do in the same time, as measured, with Associated Learning (AL) and with "
        "backpropagation (BP): with AL both compute nearly all the time, with BP they wait for each other.",
    )
    PICTURE.write_text(figure.svg, encoding="utf-8")


if __name__ == "__main__":
    main()
