"""Decide the claims of the reports in docs/studies again, from their tables, after a claim, a bound or the statistics
changed.

    python -m benchmarks.decided_again [NAME ...]     without names: all reports

It writes verdicts.json, the verdicts on each page, and what a page says of best settings, of steps to a target, of
scaling, with their figures. What follows from run folders, which are not committed, stays
as it is.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from alray.report.figure import Exhibit, exhibits_of
from alray.report.table import in_markdown
from alray.studies.doubt import not_bracketed
from alray.studies.figures.scaling import device_scaling
from alray.studies.figures.to_target import best_settings, steps_to_target
from alray.studies.report import shown
from alray.studies.verdicts import answers_of, verdicts
from benchmarks import findings_page
from benchmarks.committed import Report, reports
from benchmarks.findings_page import KEPT
from benchmarks.studies import keep_figure, pictured


def decide(report: Report) -> None:
    """Write the answers of a report, and the parts of its page that follow from its tables."""
    results = report.results
    answers = answers_of(results)
    kept = report.kept
    kept["study"]["verdicts"] = findings_page.asked(report.loaded.study)["verdicts"]
    kept["verdicts"] = [answer.model_dump(mode="json") for answer in answers]
    (report.folder / KEPT).write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    page = report.page.read_text(encoding="utf-8")
    of_tables = exhibits_of(results, (steps_to_target, best_settings, device_scaling))
    if not answers:
        before, _, after = page.partition("\n## Verdicts\n")
        page = before + after[after.find("\n## ") :]
    for exhibit in [*exhibits_of(answers, (verdicts,)), *of_tables]:
        if f"\n## {exhibit.title}\n" in page:
            page = _with(page, exhibit, report.folder / "figures")
    page = _with_what_is_not_bracketed(page, [told for _, _, told in not_bracketed(results, results.rows)])
    report.page.write_text(page, encoding="utf-8")


def _with(page: str, exhibit: Exhibit, figures: Path) -> str:
    """A page with this exhibit in place of the one of the same title, and its figures that the page shows."""
    drawn = tuple(figure for figure in exhibit.figures if (figures / f"{figure.name}.png").is_file())
    text = pictured("\n\n".join(shown(replace(exhibit, figures=drawn))))
    before, after = re.split(rf"^## {re.escape(exhibit.title)}$", page, maxsplit=1, flags=re.MULTILINE)
    _, heading, rest = after.partition("\n## ")
    with tempfile.TemporaryDirectory() as folder:
        for figure in drawn:
            file = Path(folder) / f"{figure.name}.svg"
            file.write_text(figure.svg, encoding="utf-8")
            keep_figure(file, figures)
    return f"{before}{text}\n{heading}{rest}"


def _with_what_is_not_bracketed(page: str, told: Sequence[str]) -> str:
    """A page with these warnings, above its first heading, in place of its own ones of this kind."""
    top, heading, rest = page.partition("\n## ")
    parts = [part for part in top.rstrip("\n").split("\n\n") if not re.match(r"\*\*.* is not bracketed: ", part)]
    return "\n\n".join([*parts, *(f"**{in_markdown(each)}**" for each in told)]) + f"\n{heading}{rest}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decided_again")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a study; none: all that have a report")
    names = parser.parse_args().names
    for report in reports():
        if names and report.name not in names:
            continue
        decide(report)
        print(f"{report.name}: {len(report.kept['verdicts'])} claims")  # noqa: T201
    findings_page.main()


if __name__ == "__main__":
    main()
