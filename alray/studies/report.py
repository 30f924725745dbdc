"""The report of a study, made from the records of its trials: a page, the same as Markdown, figures, tables, JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from alray import __version__
from alray.config.loading.load import dump_spec
from alray.config.study.points import label_of
from alray.core.counting import counted
from alray.core.run_folder.records import replace_file, write_json
from alray.core.storage.location import require_no_links
from alray.report import figure
from alray.report.figure import TABLES, Exhibit, write_exhibits, write_table
from alray.report.html import render_page
from alray.report.run_page import call_again
from alray.report.table import Table, in_markdown
from alray.report.text import seconds
from alray.studies.figures import exhibits_of, warnings_of
from alray.studies.folder import MARKDOWN, REPORT, STUDY, SUMMARY, StudyFolder
from alray.studies.records import Answer, SkippedPoint, StudySummary, TrialRecord
from alray.studies.results import Results
from alray.studies.table import is_tested_later, table_of, trials_table
from alray.studies.verdicts import answers_of, verdicts

TIMES_ONLY = "This study measures times only: its trials are too short to learn anything, so it shows no accuracies."


@dataclass(frozen=True)
class StudyReport:
    """The outcome of a study.

    Attributes:
        table: its rows as texts.
    """

    summary: StudySummary
    table: Table


def write_report(folder: StudyFolder, columns: Sequence[str] = ()) -> StudyReport:
    """Write the report of a study again and return it. The study may still be going on.

    Args:
        columns: those of the table of points, by their names in its CSV; none: those that suit the study.

    Raises:
        RequestError: if there is no such column.
    """
    require_no_links(folder.path)
    study, records, lost = folder.study, folder.records(), folder.lost()
    times_only = study.measures == "times"
    records = [each.without_accuracies for each in records] if times_only else records
    results = Results(study, records, folder.trial_dir, [each.point for each in folder.begun.skipped])
    table = table_of(
        results.rows,
        target=study.target is not None,
        times_only=times_only,
        columns=columns,
    )
    answers = answers_of(results)
    exhibits = [*figure.exhibits_of(answers, (verdicts,)), *exhibits_of(results)]
    exhibits += figure.exhibits_of(folder.begun.skipped, (skipped_points,))
    warnings = warnings_of(results)
    later, dropped = folder.changed_claims()
    if later:
        warnings.append(
            f"These claims or their bounds are later than the first trial of the study: {'; '.join(later)}."
        )
    if dropped:
        warnings.append(f"The study no longer asks these claims, or not with their bounds: {'; '.join(dropped)}.")
    summary = _summary(folder, results, lost, exhibits, warnings, answers)
    exhibits = write_exhibits(exhibits, folder.path)
    write_table("points", table, folder.path / TABLES)
    write_table("trials", trials_table(results.records), folder.path / TABLES)
    write_json(folder.path / SUMMARY, summary.model_dump(mode="json"))
    replace_file(folder.path / REPORT, _page(folder, results, lost, summary, table, exhibits))
    replace_file(folder.path / MARKDOWN, markdown_of(results, summary, table, exhibits))
    return StudyReport(summary, table)


def skipped_points(skipped: Sequence[SkippedPoint]) -> Exhibit | None:
    """Combinations of the axes whose values do not fit together. The study left them out (`impossible: skip`): no trial
    of them ran, and no figure has them."""
    if not skipped:
        return None
    table = Table(("point", "reason"), tuple((label_of(each.point), each.reason) for each in skipped))
    return Exhibit("Skipped points", (), tables={"skipped_points": table})


def _summary(
    folder: StudyFolder,
    results: Results,
    lost: Sequence[TrialRecord],
    exhibits: Sequence[Exhibit],
    warnings: Sequence[str],
    answers: list[Answer],
) -> StudySummary:
    begun, records = folder.begun, results.records
    left = len(begun.trials) - len(records)
    return StudySummary(
        version=__version__,
        study=results.study.study,
        status="finished" if left == 0 else "unfinished" if left == len(lost) else "interrupted",
        study_dir=str(folder.path),
        points=len(begun.points),
        skipped=begun.skipped,
        trials=len(begun.trials),
        statuses=dict(Counter(record.status for record in records)),
        lost=len(lost),
        trials_s=sum(record.summary.duration_s for record in records if record.summary is not None),
        rows=[row.as_json() for row in results.rows],
        findings=[finding for exhibit in exhibits for finding in exhibit.findings],
        warnings=list(warnings),
        verdicts=answers,
        report=str(folder.path / REPORT),
    )


def _page(
    folder: StudyFolder,
    results: Results,
    lost: Sequence[TrialRecord],
    summary: StudySummary,
    table: Table,
    exhibits: Sequence[Exhibit],
) -> str:
    objects = list(folder.begun.objects)
    return render_page(
        "study.html",
        exhibits,
        title=f"{results.study.study} · alray",
        version=__version__,
        study=results.study,
        metric=results.metric,
        times_only=TIMES_ONLY if results.study.measures == "times" else None,
        spec=dump_spec(results.study),
        made_with=made_with(results),
        again=call_again("study", str(folder.path / STUDY), objects),
        trial_again=call_again("reproduce", str(folder.trial_dir(0)), objects),
        tested_later=tested_later(results),
        summary=summary,
        table=table,
        trials=trials_table(results.records),
        without_figures=trials_table(
            [*(record for record in results.records if record.status not in ("finished", "reached")), *lost]
        ),
    )


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
