"""`alray doctor`."""

from __future__ import annotations

from itertools import chain
from typing import Annotated

import typer

from alray.cli.terminal import Json, terminal


def doctor(
    *,
    network: Annotated[
        bool,
        typer.Option("--network", help="Check the nodes of a Ray cluster too, and measure the links between them."),
    ] = False,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="A", help="The address of that cluster.  [default: RAY_ADDRESS, or the Ray of this machine]"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Check whether this machine can run alray.

    The exit code is 1 if a check finds a fault.
    """
    with terminal(as_json=json) as streams:
        from alray.cli.checks import findings
        from alray.cli.cluster_checks import cluster_findings

        found = []
        for finding in chain(findings(), cluster_findings(address) if network or address else ()):
            found.append(finding)
            if not json:
                streams.say(str(finding))
        ok = all(finding.state != "fault" for finding in found)
        if json:
            streams.answer({"ok": ok, "checks": [finding.as_json() for finding in found]})
    if not ok:
        raise typer.Exit(1)
