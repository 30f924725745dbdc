"""The table of docs/crossover.md of training to a target: measured, and by the rule."""

from __future__ import annotations

from pathlib import Path

from alray.studies.doubt import of_two
from alray.studies.results import Results
from alray.studies.table import PointRow
from benchmarks.committed import report_of
from benchmarks.factors_table import alphas
from benchmarks.findings_page import KEPT, REPORTS

STUDY = "target"
NETWORKS = {"mlp": "MLP-6", "vgg": "VGG", "resnet": "ResNet-4"}
WAYS = {
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
_METHODS = {"dgl_2": "decoupled_greedy", "dgl_replicas": "decoupled_greedy", "al_2": "associated_learning"}
_TIME, _SAMPLES = "seconds_to_target", "samples_to_target"


def to_the_target(reports: Path = REPORTS) -> str:
    """The time of each way over that of backpropagation on one device, and in brackets by the rule."""
    if not (reports / STUDY / KEPT).is_file():
        return "This study has not run yet."
    results = report_of(STUDY).results
    rows = {str(row.point["variant"]): row for row in results.rows}
    lines = [f"| way | {' | '.join(NETWORKS.values())} |", f"| --- |{' ---: |' * len(NETWORKS)}"]
    for way, name in WAYS.items():
        cells = [_cell(results, rows, network, way) for network in NETWORKS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(results: Results, rows: dict[str, PointRow], network: str, way: str) -> str:
    row, alone = rows[f"{network}_{way}"], rows[f"{network}_{ONE_DEVICE}"]
    measured, samples = (of_two(results, figure, row, alone, "ratio") for figure in (_TIME, _SAMPLES))
    if measured.confidence is None or measured.interval is None or samples.confidence is None:
        return "-"
    low, high = measured.interval
    rule = _bubble(network, way) * samples.shown(samples.confidence.middle) / 2
    return f"{measured.shown(measured.confidence.middle):.2f} ({low:.2f} to {high:.2f}) [{rule:.2f}]"


def _bubble(network: str, way: str) -> float:
    """What a mini-batch on two devices takes by the rule, over half of that of backpropagation on one."""
    if way in _METHODS:
        return alphas()[network][_METHODS[way]][0]
    return _BUBBLES.get(way, 1.0)
