"""The report of a study as Markdown: what `report.html` shows, for a repository or a paper. Its figures are files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from alray.core.counting import counted
from alray.report.figure import Exhibit
from alray.report.table import Table, in_markdown
from alray.report.text import seconds
from alray.studies.records import StudySummary
from alray.studies.results import Results
from alray.studies.table import is_tested_later

TIMES_ONLY = "This study measures times only: its trials are too short to learn anything, so it shows no accuracies."


def tested_later(results: Results) -> str | None:
    """How many of the trials that the table shows have a test metric of other weights than the validation metric, as a
    sentence; None if none has."""
    shown = [record for row in results.rows for record in row.best]
    title = results.metric.title
    if not (later := sum(map(is_tested_later, shown))):
        return None
    return (
        f"The test {title} of {later} of {counted(len(shown), 'trial')} is that of the last weights, and the "
        f"validation {title} that of earlier ones: the run was tested at its end alone (run.test: end)."
    )


def markdown_of(results: Results, summary: StudySummary, table: Table, exhibits: Sequence[Exhibit]) -> str:
    """The text of `report.md`. It names the files of the figures relative to its folder."""
    ended = sum(summary.statuses.values())
    statuses = ", ".join(f"{count} {status}" for status, count in summary.statuses.items())
    lost = f"; {counted(summary.lost, 'trial')} lost, which a resume runs again" if summary.lost else ""
    parts = [
        f"# {summary.study}",
        f"{summary.outcome}: {counted(summary.points, 'point')}, {ended} of {counted(summary.trials, 'trial')} "
        f"({statuses}), {seconds(summary.trials_s)} of trials{lost}",
        *([TIMES_ONLY] if results.study.measures == "times" else []),
        *(f"**{in_markdown(warning)}**" for warning in summary.warnings),
        *(part for exhibit in exhibits for part in shown(exhibit)),
        "## Points",
        table.markdown.rstrip(),
    ]
    if (later := tested_later(results)) is not None:
        parts.append(later)
    if (with_what := made_with(results)) is not None:
        parts += ["## Made with", with_what]
    return "\n\n".join(parts) + "\n"


def shown(exhibit: Exhibit) -> list[str]:
    """An exhibit as paragraphs."""
    findings = "\n".join(f"- {in_markdown(finding)}" for finding in exhibit.findings)
    figures = [f"![{_in_brackets(figure.description)}](figures/{figure.name}.svg)" for figure in exhibit.figures]
    tables = [table.markdown.rstrip() for table in exhibit.tables.values()]
    parts = [f"## {exhibit.title}", findings, *figures, exhibit.note, *tables]
    return [part for part in parts if part]


def _in_brackets(text: str) -> str:
    return in_markdown(text).replace("[", r"\[").replace("]", r"\]")


def made_with(results: Results) -> str | None:
    """The code, the libraries and the machine of the trials, each with the day of the first trial that had it; None if
    no trial ran."""
    days: dict[str, str] = {}
    for of in filter(None, map(results.environment, results.records)):
        days.setdefault(_with_what(of), (of.get("date") or "")[:10])
    return " / ".join("; ".join(filter(None, each)) for each in days.items()) or None


def _with_what(of: Mapping[str, Any]) -> str:
    git = of.get("git")
    packages = of.get("packages") or {}
    cores = of.get("cores")
    changed = " with changes" if git and git["dirty"] else ""
    commit = f" at commit {git['commit'][:12]}{changed}" if git else ""
    named = {"Python": of.get("python"), "torch": of.get("torch")} | {
        name: packages.get(name) for name in ("ray", "numpy")
    }
    versions = [f"{name} {version}" for name, version in named.items() if version is not None]
    software = ", ".join([f"alray {of.get('alray')}{commit}", *versions])
    hardware = ", ".join(filter(None, [of.get("device"), cores and counted(cores, "core")]))
    return "; ".join(filter(None, [software, hardware]))
