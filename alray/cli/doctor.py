"""`alray doctor`."""

from __future__ import annotations

import typer

from alray.cli.terminal import Json, terminal


def doctor(*, json: Json = False) -> None:
    """Check whether this machine can run alray.

    The exit code is 1 if a check finds a fault.
    """
    with terminal(as_json=json) as streams:
        from alray.cli.checks import findings

        found = []
        for finding in findings():
            found.append(finding)
            if not json:
                streams.say(str(finding))
        ok = all(finding.state != "fault" for finding in found)
        if json:
            streams.answer({"ok": ok, "checks": [finding.as_json() for finding in found]})
    if not ok:
        raise typer.Exit(1)
