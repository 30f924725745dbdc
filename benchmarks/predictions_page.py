"""Write docs/predictions.md: predicted over measured step times of every setting in the reports of docs/studies, and of
pipelines that other people measured.

    python -m benchmarks.predictions_page

A report counts if its trials ran one at a time, and if its study has not changed since. Trials that other programs
disturbed are left out.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, quantiles

from alray.config.study.load import read_study_file
from alray.config.study.points import series_label
from benchmarks import published
from benchmarks.committed import taken_from
from benchmarks.findings_page import BESIDE, KEPT, REPORTS, SPECS, is_of_today

PAGE = Path(__file__).parents[1] / "docs" / "predictions.md"
_LEFT_OUT = {"dynamic_batch_size": "slows its replicas on purpose, which no plan knows"}

INTRODUCTION = """\
# Predicted and measured step times

Written by `make findings` from the reports of the studies. A run predicts its step time before it trains, from the
times of its components alone. The page has predicted over measured step time: below 1 the step took longer than
predicted. A setting is a row of a report, a mean over its trials.

The reports were made on two processor cores of several machines. Those that are left out ran several trials at a time,
or all their trials beside other programs, or their studies have changed since. Of the others, single trials that other
programs disturbed are left out. A plan adds the time of the replicas'
sums to that of the update: it does not know that a sum begins while the backward pass goes on."""


@dataclass(frozen=True)
class Setting:
    """A row of a report. ratio: predicted over measured step time."""

    study: str
    name: str
    ratio: float


def settings(specs: Path, reports: Path) -> list[Setting]:
    """The settings of all studies in `specs` whose report in `reports` counts."""
    found = []
    for file in sorted(specs.glob("*.yaml")):
        study = read_study_file(file)
        report = reports / study.study
        if study.max_concurrent != 1 or study.study in _LEFT_OUT or not (report / KEPT).is_file():
            continue
        ran = json.loads((report / KEPT).read_text(encoding="utf-8"))["study"]
        page = (report / "README.md").read_text(encoding="utf-8")
        if not is_of_today(study, ran, as_often=False) or BESIDE in page:
            continue
        times: dict[str, list[tuple[float, float]]] = {}
        with (report / "tables" / "trials.csv").open(encoding="utf-8") as rows:
            for row in csv.DictReader(rows):
                predicted_s, measured_s = row["predicted_step_time_s"], row["step_time_s"]
                if predicted_s and measured_s and taken_from(page, int(row["trial"])) is None:
                    name = series_label({axis: row[axis] for axis in study.axes})
                    times.setdefault(name, []).append((float(predicted_s), float(measured_s)))
        for name, pairs in times.items():
            predicted, measured = map(fmean, zip(*pairs, strict=True))
            found.append(Setting(study.study, name, predicted / measured))
    return found


def page(found: list[Setting], elsewhere: str) -> str:
    """The page's text.

    Args:
        elsewhere: its section about pipelines that other people measured.
    """
    ratios = sorted(each.ratio for each in found)
    low, *_, high = quantiles(ratios, n=20, method="inclusive")
    near = sum(abs(ratio - 1.0) <= 0.1 for ratio in ratios) / len(ratios)
    names = sorted({each.study for each in found})
    over_all = (
        f"Over all {len(ratios)} settings of {len(names)} studies the median is **{median(ratios):.2f}**. Nine "
        f"in ten lie between **{low:.2f}** and **{high:.2f}**; {100 * near:.0f} % are within 10 % of 1."
    )
    lines = ["| study | settings | median | lowest | highest |", "| --- | ---: | ---: | --- | --- |"]
    for name in names:
        own = sorted((each for each in found if each.study == name), key=lambda each: each.ratio)
        middle = f"{median(each.ratio for each in own):.2f}"
        ends = " | ".join(f"{end.ratio:.2f}: {end.name}" for end in (own[0], own[-1]))
        lines.append(f"| [{name}](studies/{name}/README.md) | {len(own)} | {middle} | {ends} |")
    left_out = " ".join(f"`{name}` is left out too: it {why}." for name, why in _LEFT_OUT.items())
    return "\n\n".join([f"{INTRODUCTION} {left_out}", over_all, "\n".join(lines), elsewhere])


def main() -> None:
    PAGE.write_text(page(settings(SPECS, REPORTS), published.section()), encoding="utf-8")


if __name__ == "__main__":
    main()
