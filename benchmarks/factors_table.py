"""The tables of rho and alpha on docs/crossover.md, from committed reports of studies and from `benchmarks.alpha`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alray.studies.doubt import of_two
from alray.studies.results import Results
from alray.studies.table import PointRow
from benchmarks.committed import report_of
from benchmarks.findings_page import KEPT, REPORTS
from benchmarks.runs import RESULTS

OVER_BATCH_SIZES = "batch_size_al"
OVER_FAMILIES = ("crossover_factors", "crossover_factors_gpt")
NETWORKS = {
    "mlp": "MLP: 6 layers of 128; digits, error 0.10",
    "vgg": "VGG: 4 components; digits, error 0.10",
    "resnet": "ResNet: 4 components; digits, error 0.10",
    "lstm": "LSTM: 2 layers of 32; docstrings, error 0.25",
    "transformer": "Transformer: 2 layers of 32; docstrings, error 0.25",
    "gpt": "GPT: 4 layers of 48; bytes of docstrings, 3.0 nats",
}
SHORT = {"decoupled_greedy": "DGL", "associated_learning": "AL"}
BASELINE = "backpropagation"
_RATE, _STEPS = "optimizer.lr", "steps_to_target"


def over_batch_sizes() -> str:
    """rho of an MLP, by the size of the mini-batch."""
    results = report_of(OVER_BATCH_SIZES).results
    rows = {(row.point["variant"], row.point["data.batch_size"]): row for row in results.rows}
    names = ("dgl", "scpl", "al")
    lines = [
        "| samples a mini-batch | rates: BP, DGL, SCPL, AL | rho of DGL | of SCPL | of AL |",
        "| ---: | --- | ---: | ---: | ---: |",
    ]
    for size in dict.fromkeys(size for _, size in rows):
        rates = ", ".join(_rate(results, rows[name, size]) for name in ("bp", *names))
        found = (_rho(results, rows[name, size], rows["bp", size]) for name in names)
        lines.append(f"| {size:,} | {rates} | {' | '.join(found)} |")
    return "\n".join(lines)


def over_families(reports: Path = REPORTS, measured: Path = RESULTS) -> str:
    """rho and alpha of each family and method. A family without a report has no row."""
    file = measured / "alpha.json"
    alpha = json.loads(file.read_text(encoding="utf-8"))["families"] if file.is_file() else {}
    lines = [
        "| network, data, target | method | its rate, BP's | mini-batches, BP's | rho | alpha |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for name in OVER_FAMILIES:
        if (reports / name / KEPT).is_file():
            lines += _of_report(report_of(name).results, alpha)
    return "\n".join(lines) if len(lines) > 2 else "These two studies have not run yet: their factors are not known."


def _of_report(results: Results, alpha: dict[str, Any]) -> Iterator[str]:
    rows = {(_family(row), _method(row)): row for row in results.rows}
    for family in dict.fromkeys(family for family, _ in rows):
        best = rows[family, BASELINE]
        for kind, short in SHORT.items():
            row = rows.get((family, kind))
            if row is None:  # the study was stopped before
                continue
            cells = (
                NETWORKS[family],
                short,
                f"{_rate(results, row)}, {_rate(results, best)}",
                f"{_steps(row)}, {_steps(best)}",
                _rho(results, row, best),
                _with_ends(*alpha[family]["alpha"][kind]) if family in alpha else "not measured",
            )
            yield f"| {' | '.join(cells)} |"


def _family(row: PointRow) -> str:
    return str(row.point.get("variant", "gpt"))


def _method(row: PointRow) -> str:
    method = row.point["method"]
    return str(method["kind"] if isinstance(method, dict) else method)


def _rate(results: Results, row: PointRow) -> str:
    """The best rate of a point; with a star where it is the smallest or the largest that was tried."""
    tried = {record.values[_RATE] for record in results.records if record.point == row.point}
    (rate,) = {record.values[_RATE] for record in row.best}
    return f"{rate:.2g}{'' if min(tried) < rate < max(tried) else '*'}"


def _steps(row: PointRow) -> str:
    """Mini-batches to the target, and how many seeds reached it, unless all did."""
    steps = row.figures[_STEPS]
    reached = f"{steps.mean:.0f}" if steps is not None else "not reached"
    return reached if row.reached == row.tried else f"{reached} ({row.reached} of {row.tried})"


def _rho(results: Results, row: PointRow, best: PointRow) -> str:
    """With its 90 % interval, as a verdict has it; of one seed without."""
    found = of_two(results, _STEPS, row, best, "ratio")
    over, under = row.figures[_STEPS], best.figures[_STEPS]
    if found.confidence is not None and found.interval is not None:
        return _with_ends(found.shown(found.confidence.middle), *found.interval)
    return "-" if over is None or under is None else f"{over.mean / under.mean:.2f}"


def _with_ends(value: float, low: float, high: float) -> str:
    return f"{value:.2f} ({low:.2f} to {high:.2f})"
