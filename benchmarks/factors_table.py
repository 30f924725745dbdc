"""The table of alpha and rho on docs/crossover.md, from the reports of two studies and from `benchmarks.alpha`."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.runs import RESULTS

REPORTS = Path(__file__).parents[1] / "docs" / "studies"
STUDIES = ("crossover_factors", "crossover_factors_gpt")
NETWORKS = {
    "mlp": "MLP, 6 layers of 128; digits, error 0.10",
    "vgg": "VGG, 4 layers; digits, error 0.10",
    "resnet": "ResNet, 4 components; digits, error 0.10",
    "lstm": "LSTM, 2 layers of 32; docstrings, error 0.25",
    "transformer": "Transformer, 2 layers of 32; docstrings, error 0.25",
    "gpt": "GPT, 4 layers of 48; bytes of docstrings, 3.0 nats",
}
METHODS = {"decoupled_greedy": "DGL", "associated_learning": "AL"}
BASELINE = "backpropagation"
HEADING = (
    "| network and target | method | rate, BP's rate | mini-batches, BP's | rho (90 %) | alpha | alpha x rho |\n"
    "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
)


def table(results: Path = RESULTS, reports: Path = REPORTS) -> str:
    """A row for each family and method; without a report a family has none."""
    alpha = json.loads((results / "alpha.json").read_text(encoding="utf-8"))["families"]
    rows = [row for study in STUDIES if (reports / study).is_dir() for row in _rows(reports / study, alpha)]
    return "\n".join((HEADING, *rows))


def _rows(report: Path, alpha: dict[str, Any]) -> Iterator[str]:
    points = {(_family(row), row["method"].split(",")[0]): row for row in _read(report / "tables" / "points.csv")}
    trials = _read(report / "tables" / "trials.csv")
    answers = json.loads((report / "verdicts.json").read_text(encoding="utf-8"))["verdicts"]
    for family in dict.fromkeys(family for family, _ in points):
        best = points[family, BASELINE]
        for (kind, name), answer in zip(METHODS.items(), answers, strict=True):
            (rho,) = (each for each in answer["compared"] if each["point"] in ("", f"variant={family}"))
            row = points[family, kind]
            step, low, high = alpha[family]["alpha"][kind]
            cells = [
                NETWORKS[family] if kind == "decoupled_greedy" else "",
                name,
                f"{_rate(row, trials)}, {_rate(best, trials)}",
                f"{_steps(row)}, {_steps(best)}",
                "-" if rho["value"] is None else f"{rho['value']:.2f} {_between(rho['low'], rho['high'])}",
                f"{step:.2f} {_between(low, high)}",
                "-" if rho["value"] is None else f"{step * rho['value']:.2f}",
            ]
            yield f"| {' | '.join(cells)} |"


def _read(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def _family(row: dict[str, str]) -> str:
    return row.get("variant", "gpt")


def _rate(row: dict[str, str], trials: list[dict[str, str]]) -> str:
    """The best rate of a point; with a star where it is the smallest or the largest that was tried."""
    tried = [
        float(each["optimizer.lr"])
        for each in trials
        if (_family(each), each["method"]) == (_family(row), row["method"])
    ]
    rate = float(row["optimizer.lr"])
    return f"{rate:.1e}{'' if min(tried) < rate < max(tried) else '*'}"


def _steps(row: dict[str, str]) -> str:
    """Mini-batches to the target, and of how many seeds, unless all reached it."""
    reached, tried = row["reached"], row["tried"]
    steps = f"{float(row['steps_to_target']):.0f}" if row["steps_to_target"] else "not reached"
    return steps if reached == tried else f"{steps} ({reached} of {tried})"


def _between(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"({low:.2f} to {high:.2f})"
