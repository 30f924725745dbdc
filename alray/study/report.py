"""The report of a study, made from the records of its trials: `study.json`, `report.html` and `table.csv`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from alray import __version__
from alray.records import replace_file, write_json
from alray.report.compare_tables import Table
from alray.report.html import render
from alray.spec.study.loading import dump_study
from alray.spec.study.section import Study
from alray.study.folder import REPORT, SUMMARY, StudyFolder
from alray.study.records import StudySummary, TrialRecord
from alray.study.table import csv_of, rows_of, table_of


@dataclass(frozen=True)
class StudyReport:
    """What a study came to. table: its rows as texts."""

    summary: StudySummary
    table: Table


def write_report(folder: StudyFolder) -> StudyReport:
    """Write the report of a study again and return it. The study may still be going on."""
    study, records = folder.study, folder.records()
    rows = rows_of(records, target=study.target is not None)
    table = table_of(rows, target=study.target is not None)
    begun = folder.enumerated
    page = folder.path / REPORT
    summary = StudySummary(
        version=__version__,
        study=study.study,
        status="finished" if len(records) == len(begun["trials"]) else "interrupted",
        study_dir=str(folder.path),
        points=len(begun["points"]),
        trials=len(begun["trials"]),
        statuses=dict(Counter(record.status for record in records)),
        trials_s=sum(record.summary.duration_s for record in records if record.summary is not None),
        rows=[row.as_json() for row in rows],
        report=str(page),
    )
    write_json(folder.path / SUMMARY, summary.model_dump(mode="json"))
    replace_file(folder.path / "table.csv", csv_of(rows))
    replace_file(page, _page(study, summary, table, records))
    return StudyReport(summary, table)


def _page(study: Study, summary: StudySummary, table: Table, records: Sequence[TrialRecord]) -> str:
    return render(
        "study.html",
        title=f"{study.study} · alray",
        version=__version__,
        study=study,
        spec=dump_study(study),
        summary=summary,
        table=table,
        without_figures=[record for record in records if record.status not in ("finished", "reached")],
    )
