"""The table of docs/crossover.md of training to a target: measured, and by the rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from alray.studies.doubt import of_two
from alray.studies.results import Results
from alray.studies.table import PointRow
from benchmarks.committed import report_of
from benchmarks.factors_table import alphas
from benchmarks.findings_page import KEPT, REPORTS

STUDIES = {
    "target": {"mlp": "MLP-6", "vgg": "VGG", "resnet": "ResNet-4"},
    "long": {"mlp": "MLP-6 of 512", "vgg": "VGG of Fashion-MNIST"},
}
"""Each study, and the names of its networks."""
WAYS = {
    "bp_threads": "one process, both cores",
    "dgl_1": "DGL, one device",
    "al_1": "AL, one device",
    "dgl_2": "DGL, two stages",
    "al_2": "AL, two stages",
    "1f1b_m2": "1F1B, M = 2",
    "1f1b_m4": "1F1B, M = 4",
    "1f1b_m8": "1F1B, M = 8",
    "zero_bubble_m4": "zero bubble, M = 4",
    "2bw_m4": "2BW, M = 4",
    "replicas": "two replicas",
    "diloco": "two replicas, averaged every 20 mini-batches (DiLoCo)",
    "dgl_replicas": "DGL, two replicas",
}
ONE_DEVICE = "bp"
_BUBBLES = {"1f1b_m2": 1.5, "1f1b_m4": 1.25, "1f1b_m8": 1.125}
"""The time of a mini-batch of each pipeline over that of two stages without a bubble, by the rule."""
_ALONE = {"dgl_2": "dgl_1", "dgl_replicas": "dgl_1", "al_2": "al_1"}
"""Of each way by local losses, the one that trains by them on one device."""
_METHODS = {"dgl_1": "decoupled_greedy", "al_1": "associated_learning"}
_NO_RULE = ("bp_threads", *_METHODS)
_TIME, _SAMPLES, _STEP = "seconds_to_target", "samples_to_target", "step_time_s"


def to_the_target(reports: Path = REPORTS) -> str:
    """The time of each way over that of backpropagation on one device, and in brackets by the rule."""
    ran = [name for name in STUDIES if (reports / name / KEPT).is_file()]
    if not ran:
        return "These studies have not run yet."
    columns = [column for name in ran for column in _columns(report_of(name).results, STUDIES[name])]
    lines = [f"| way | {' | '.join(title for title, _ in columns)} |", f"| --- |{' ---: |' * len(columns)}"]
    for way, name in WAYS.items():
        lines.append(f"| {name} | {' | '.join(cells[way] for _, cells in columns)} |")
    return "\n".join(lines)


def _columns(results: Results, networks: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Of each network its name, and the cell of each way."""
    rows = {str(row.point["variant"]): row for row in results.rows}
    for network, title in networks.items():
        yield title, {way: _cell(results, rows, network, way) for way in WAYS}


def _cell(results: Results, rows: Mapping[str, PointRow], network: str, way: str) -> str:
    row, alone = rows.get(f"{network}_{way}"), rows[f"{network}_{ONE_DEVICE}"]
    if row is None:
        return "not tried"
    measured, samples = (of_two(results, figure, row, alone, "ratio") for figure in (_TIME, _SAMPLES))
    if measured.confidence is None or measured.interval is None or samples.confidence is None:
        return "-"
    low, high = measured.interval
    told = f"{measured.shown(measured.confidence.middle):.2f} ({low:.2f} to {high:.2f})"
    if way in _NO_RULE:
        return told
    rule = _step(results, rows, network, way) * samples.shown(samples.confidence.middle) / 2
    return f"{told} [{rule:.2f}]"


def _step(results: Results, rows: Mapping[str, PointRow], network: str, way: str) -> float:
    """What a mini-batch on two devices takes by the rule, over half of that of backpropagation on one.

    alpha of a method is that of the study itself, where it trains by this method on one device, and otherwise that of
    `benchmarks.alpha`.
    """
    if way not in _ALONE:
        return _BUBBLES.get(way, 1.0)
    row = rows.get(f"{network}_{_ALONE[way]}")
    if row is None:
        return alphas()[network][_METHODS[_ALONE[way]]][0]
    alpha = of_two(results, _STEP, row, rows[f"{network}_{ONE_DEVICE}"], "ratio")
    assert alpha.confidence is not None, f"{network}: no step of {_ALONE[way]}"
    return alpha.shown(alpha.confidence.middle)
