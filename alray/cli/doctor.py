"""`alray doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Annotated

import typer

from alray.api.console.layout import GREEN, RED, YELLOW, Page
from alray.cli.check_result import CheckResult
from alray.cli.options import Json
from alray.cli.terminal import terminal
from alray.core.counting import counted

_STYLES = {"ok": GREEN, "warning": YELLOW, "fault": RED}
_WIDTH = max(map(len, _STYLES))


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

        found: list[CheckResult] = []
        for finding in chain(findings(), cluster_findings(address) if network or address else ()):
            found.append(finding)
            if not json:
                streams.put(_text_of(finding, streams.page))
        ok = all(finding.state != "fault" for finding in found)
        if json:
            streams.answer({"ok": ok, "checks": [finding.as_json() for finding in found]})
        else:
            streams.say(_counted(found))
    if not ok:
        raise typer.Exit(1)


def _text_of(finding: CheckResult, page: Page) -> str:
    """Return the text of a check's result, with its hint below it."""
    margin = " " * (_WIDTH + 2)
    text = page.sentence(
        f"{finding.name}: {finding.message}", first=f"{finding.state:{_WIDTH}}  ", hang=margin
    ).removeprefix(finding.state)
    lines = [page.styled(finding.state, _STYLES[finding.state]) + text]
    if finding.hint is not None:
        lines.append(page.sentence(f"help: {finding.hint}", first=f"{margin}= ", hang=f"{margin}  "))
    return "\n".join(lines)


def _counted(found: Sequence[CheckResult]) -> str:
    counts = {state: sum(finding.state == state for finding in found) for state in ("fault", "warning")}
    wrong = ", ".join(counted(count, state) for state, count in counts.items() if count)
    return f"{counted(len(found), 'check')}: {wrong or 'all is well'}"
