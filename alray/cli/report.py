"""`alray report`."""

from __future__ import annotations

from alray.cli.options import Json, RunFolder
from alray.cli.terminal import shown, terminal


def report(run_dir: RunFolder, *, json: Json = False) -> None:
    """Make the report of a run again, and show its single step.

    From its records, also while it goes on.
    """
    with terminal(as_json=json) as streams:
        from alray.cli.single_step_text import print_single_step
        from alray.report.folder import read_run
        from alray.report.make import make_report
        from alray.report.single_step import single_step

        path = make_report(run_dir)
        run = read_run(run_dir)
        step = single_step(run.kept, run.plan)
        if json:
            streams.answer({"report": str(path), "single_step": step.as_json()})
        else:
            print_single_step(step, stream=streams.out)
            streams.say(shown(path))
