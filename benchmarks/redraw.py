"""Write the reports in docs/studies again from their tables, without what the clock of alray before 0.3 decided.

    python -m benchmarks.redraw [NAME ...]

Figures that need the records of a run cannot be drawn again: those of accuracies stay, those over seconds are removed.
tables/trials.csv keeps what was measured. A report by a newer alray keeps everything.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace

from alray.config.study.points import series_label
from alray.report.figure import Exhibit, exhibits_of, write_figure, write_table
from alray.report.spread import LEAST_FOR_SPREAD
from alray.report.table import Table
from alray.studies.figures.over_axes import heat_maps
from alray.studies.figures.scaling import device_scaling
from alray.studies.figures.to_target import steps_to_target
from alray.studies.markdown import shown
from alray.studies.records import Answer, TrialRecord
from alray.studies.results import Results
from alray.studies.table import table_of
from alray.studies.verdicts import answers_of, verdicts
from benchmarks.committed import Report, reports
from benchmarks.findings_page import AGAIN, BROKEN, KEPT
from benchmarks.invariants import broken_by, measured_by_stage_0

MARK = "**To be measured again.**"
_OVER_SECONDS = re.compile(r"(_by_seconds|^seconds_to_target)")
_OF_RECORDS = ("accuracy_by_samples", "accuracy_per_depth", "utilisation")


def redraw(report: Report) -> None:
    """Write the page, the tables and the figures of a report again."""
    page = report.page.read_text(encoding="utf-8")
    before, sections = _sections(page)
    results, short = without_the_clock(report)
    tables, figures = report.folder / "tables", report.folder / "figures"
    answers = _answers(report, results)
    found = {each.title: each for each in exhibits_of(answers, (verdicts,))}
    of_two_seeds = 1 < report.loaded.study.repeats < LEAST_FOR_SPREAD
    found |= {each.title: each for each in exhibits_of(results, (device_scaling,))}
    if of_two_seeds:
        found |= {each.title: _without_seconds(each) for each in exhibits_of(results, (steps_to_target, heat_maps))}
    for exhibit in found.values():
        for figure in exhibit.figures if of_two_seeds else ():
            write_figure(figure, figures)
            (figures / f"{figure.name}.pdf").unlink()
        for name, table in exhibit.tables.items():
            write_table(name, table, tables)
        sections[exhibit.title] = "\n\n".join(shown(exhibit)[1:])
    table, measured = _points(results), (tables / "points.csv").read_text(encoding="utf-8")
    write_table("points", table, tables)
    (tables / "points.csv").write_text(_points(report.results).csv if of_two_seeds else measured, encoding="utf-8")
    sections["Points"] = table.markdown.rstrip()
    gone = [file.stem for file in figures.glob("*.csv") if short and _OVER_SECONDS.search(file.stem)]
    gone += [name for name in _OF_RECORDS if (of_two_seeds or (short and name == "utilisation"))]
    for name in gone:
        for suffix in (".csv", ".svg"):
            (figures / f"{name}{suffix}").unlink(missing_ok=True)
    text = _joined([*_unmarked(before), *_mark(report, short)], sections, gone)
    report.page.write_text(text, encoding="utf-8")
    kept = {**report.kept, "verdicts": [each.model_dump(mode="json") for each in map(_undecided, answers)]}
    kept["study"] = {**kept["study"], "verdicts": report.loaded.study.model_dump(mode="json")["verdicts"]}
    (report.folder / KEPT).write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def without_the_clock(report: Report) -> tuple[Results, list[str]]:
    """The results without the figures that were those of stage 0, and the labels of the points that lack them."""
    records: list[TrialRecord] = []
    short: dict[str, None] = {}
    for record in report.results.records:
        if measured_by_stage_0(report, record) and _has_seconds(report, record):
            short[series_label(record.point)] = None
            record = _silent(record, report.spec_of(record).run.evaluate_every is not None)
        records.append(record)
    return Results(report.loaded.study, records, report.results.trial_dir), list(short)


def _has_seconds(report: Report, record: TrialRecord) -> bool:
    """Whether a page shows seconds of training or a bubble that evaluations made too small."""
    return report.loaded.study.measures == "all" or report.spec_of(record).run.evaluate_every is not None


def _silent(record: TrialRecord, evaluates: bool) -> TrialRecord:
    """The record without seconds of training and, if it evaluated on the way, without a bubble."""
    summary, times, reached = record.summary, record.times, record.reached
    if summary is not None and evaluates:
        summary = summary.model_copy(update={"bubble": None})
    if times is not None:
        times = times.model_copy(update={"training_s": None, "epoch_s": None})
    if reached is not None:
        reached = reached.model_copy(update={"training_s": None})
    return record.model_copy(update={"summary": summary, "times": times, "reached": reached})


def _answers(report: Report, results: Results) -> list[Answer]:
    """The answers, where those that the clock decided are to be measured again.

    Args:
        results: without its figures.
    """
    lacking = "there is no such figure"
    found = []
    for answer, with_all in zip(answers_of(results), answers_of(report.results), strict=True):
        lacks, lacked = (any(lacking in doubt for doubt in each.doubts) for each in (answer, with_all))
        if lacks and not lacked:
            answer = answer.model_copy(update={"answer": AGAIN, "compared": [], "doubts": []})
        found.append(answer)
    return found


def _undecided(answer: Answer) -> Answer:
    """As it is kept: a study has not decided what is to be measured again."""
    if answer.answer != AGAIN:
        return answer
    return answer.model_copy(update={"answer": "not decided by this study", "doubts": [AGAIN]})


def _points(results: Results) -> Table:
    study = results.study
    return table_of(
        results.rows,
        target=study.target is not None,
        times_only=study.measures == "times",
        figures=study.columns,
    )


def _mark(report: Report, short: Sequence[str]) -> list[str]:
    """What a reader must know of the times of a report, as a paragraph; none for a sound one."""
    broken = broken_by(report.results) if report.is_of_earlier_clock else []
    if not short and not broken:
        return []
    parts = [MARK]
    if short:
        parts += [
            "alray 0.2 took the seconds of training, of an epoch and to a target, and the bubble, from stage 0, which",
            f"is done before later stages. So the page leaves them out for {_listed(short)}, with the claims and",
            "curves that they decided. The step times are those of the last stage.",
        ]
    if broken:
        parts.append(f"tables/trials.csv has them as they were measured: they {BROKEN}.")
        if not short:
            parts[-1] = (
                f"The seconds of training in tables/trials.csv {BROKEN}, and no figure, claim or "
                "table on this page is made of them."
            )
        parts += broken
    return [" ".join(parts)]


def _listed(labels: Iterable[str]) -> str:
    return ", ".join(f"`{label}`" for label in labels)


def _sections(page: str) -> tuple[list[str], dict[str, str]]:
    """The paragraphs before the first section, and the text of each section by its title."""
    first, *others = re.split(r"^## ", page, flags=re.MULTILINE)
    parted = (each.split("\n", 1) for each in others)
    return [each for each in first.split("\n\n") if each.strip()], {title: text.strip() for title, text in parted}


def _unmarked(paragraphs: Sequence[str]) -> list[str]:
    return [each.strip() for each in paragraphs if not each.startswith(MARK)]


def _joined(before: Sequence[str], sections: dict[str, str], gone: Sequence[str]) -> str:
    parts = list(before)
    for title, text in sections.items():
        left = [each for each in text.split("\n\n") if not any(f"](figures/{name}.svg)" in each for name in gone)]
        had = any("](figures/" in each for each in text.split("\n\n"))
        if had and not any("](figures/" in each for each in left):
            continue
        parts += [f"## {title}", *left]
    return "\n\n".join(parts) + "\n"


def _without_seconds(exhibit: Exhibit) -> Exhibit:
    return replace(exhibit, figures=tuple(each for each in exhibit.figures if not _OVER_SECONDS.search(each.name)))


def main() -> None:
    names = sys.argv[1:]
    for report in reports():
        if not names or report.name in names:
            redraw(report)


if __name__ == "__main__":
    main()
