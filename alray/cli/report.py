"""`alray report`."""

from __future__ import annotations

from alray.cli.options import Json, RunFolder
from alray.cli.terminal import shown, terminal


def report(run_dir: RunFolder, *, json: Json = False) -> None:
    """Make the report of a run again.

    From its records, also while it goes on.
    """
    with terminal(as_json=json) as streams:
        from alray.report.make import make_report

        path = make_report(run_dir)
        if json:
            streams.answer({"report": str(path)})
        else:
            streams.say(shown(path))
