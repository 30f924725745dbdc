"""The report of a study, made from the records of its trials: a page, the same as Markdown, figures, tables, JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from alray import __version__
from alray.config.loading.load import dump_spec
from alray.config.study.points import label_of
from alray.core.run_folder.records import replace_file, write_json
from alray.core.storage.location import require_no_links
from alray.report import figure
from alray.report.figure import TABLES, Exhibit, write_exhibits, write_table
from alray.report.html import render_page
from alray.report.run_page import call_again
from alray.report.table import Table
from alray.studies.figures import exhibits_of, warnings_of
from alray.studies.folder import MARKDOWN, REPORT, STUDY, SUMMARY, StudyFolder
from alray.studies.markdown import TIMES_ONLY, made_with, markdown_of, tested_later
from alray.studies.records import Answer, SkippedPoint, StudySummary, TrialRecord
from alray.studies.results import Results
from alray.studies.table import table_of, trials_table
from alray.studies.verdicts import answers_of, verdicts


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
    shown = [each.without_accuracies for each in records] if times_only else records
    results = Results(study, shown, folder.trial_dir, [each.point for each in folder.begun.skipped])
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
