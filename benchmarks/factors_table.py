"""The tables of rho and alpha on docs/crossover.md and the picture of their product, from committed reports of studies
and from `benchmarks.alpha`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from operator import mul
from pathlib import Path
from typing import NamedTuple

from alray.report.drawing import Scale, colour_of
from alray.report.figure import ROWS_NAME, Figure, Series
from alray.studies.doubt import of_two
from alray.studies.results import Results
from alray.studies.table import PointRow
from benchmarks.committed import report_of
from benchmarks.findings_page import KEPT, REPORTS
from benchmarks.runs import RESULTS

OVER_FAMILIES = ("crossover_factors", "crossover_factors_gpt")
NETWORKS = {
    "mlp": "MLP-6",
    "vgg": "VGG",
    "resnet": "ResNet-4",
    "lstm": "LSTM",
    "transformer": "Transformer",
    "gpt": "GPT-4",
}
COMPONENTS = {"mlp": 6, "vgg": 4, "resnet": 4, "lstm": 3, "transformer": 3, "gpt": 4}
_DGL, _AL = "decoupled_greedy", "associated_learning"
SHORT = {_DGL: "DGL", _AL: "AL"}
BASELINE = "backpropagation"
LIMITS = {"BP on one device": 2.0, "1F1B, M = 2": 1.5, "1F1B, M = 4": 1.25, "replicas, 2BW": 1.0}
"""The limits of alpha x rho on two stages, by the rule of docs/crossover.md."""
_BUBBLES = ((2, (2, 4, 16)), (4, (4, 16)))
"""Stages, and micro-batches, for which a table says what follows against 1F1B."""
_RIVALS = (
    *(
        (f"1F1B {stages}/{parts}", stages, 1 + (stages - 1) / parts)
        for stages, numbers in _BUBBLES
        for parts in numbers
    ),
    ("2BW, replicas", 1, 1.0),
    *((f"one device {stages}", stages, float(stages)) for stages in (2, 3, 4)),
)
"""Each rival, its least number of stages, and the limit of alpha x rho."""
MOVED = (0.86, 1.27)
"""The least and the most of alpha on another day over alpha of the table."""
_WINS, _LOSES = "**wins**", "**loses**"
_STEPS = "steps_to_target"
_ENDS = ("product", "low", "high")
Ends = Sequence[float]
"""A middle, and the two ends around it."""


class Factors(NamedTuple):
    """What a network costs by a method, and by backpropagation; `rho` and `alpha` are None where they are not known."""

    network: str
    components: int
    kind: str
    rho: Ends | None
    alpha: Ends | None

    @property
    def product(self) -> Ends | None:
        """alpha x rho, with that of the lower ends and that of the upper ends: a range without a level."""
        return None if self.rho is None or self.alpha is None else tuple(map(mul, self.rho, self.alpha))


def over_families(reports: Path = REPORTS) -> str:
    """rho and alpha of each family and method, and their product. A family without a report has no row."""
    heads = ["network", *(f"{method}: {factor}" for method in SHORT.values() for factor in ("rho", "alpha", "product"))]
    rows: dict[str, list[str]] = {}
    for each in _of_families(reports):
        alpha = "not measured" if each.alpha is None else f"{each.alpha[0]:.2f}"
        rows.setdefault(each.network, []).extend((_with_ends(each.rho), alpha, _with_ends(each.product)))
    if not rows:
        return "These two studies have not run yet: their factors are not known."
    lines = [f"| {' | '.join((network, *cells))} |" for network, cells in rows.items()]
    return "\n".join([f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}", *lines])


def by_the_rule() -> str:
    """What the rule of docs/crossover.md says of DGL with each family against each rival."""
    heads = ["network", *(f"{rival}: {limit:.4g}" for rival, _, limit in _RIVALS)]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for each in _by(_DGL):
        said = [_beside(each, limit) if stages <= each.components else "-" for _, stages, limit in _RIVALS]
        lines.append(f"| {each.network} | {' | '.join(said)} |")
    return "\n".join(lines)


def of_al() -> str:
    """What the rule says of AL, in words."""
    wins: dict[str, list[str]] = {}
    said = []
    for each in _by(_AL):
        for rival, stages, limit in _RIVALS:
            if each.product is not None and stages <= each.components:
                said.append(_beside(each, limit))
                if said[-1] == _WINS:
                    wins.setdefault(each.network, []).append(rival)
    told = "; ".join(f"{network} over {', '.join(rivals)}" for network, rivals in wins.items())
    return f"AL wins in {said.count(_WINS)} of {len(said)} such places ({told}) and loses in {said.count(_LOSES)}."


def another_day() -> str:
    """How many wins and losses of DGL an alpha of another day would leave open, in words."""
    least, most = MOVED
    places = [(each, limit) for each in _by(_DGL) for _, stages, limit in _RIVALS if stages <= each.components]
    wins = [_beside(each, limit / most) for each, limit in places if _beside(each, limit) == _WINS]
    losses = [_beside(each, limit / least) for each, limit in places if _beside(each, limit) == _LOSES]
    return (
        f"If alpha were {most} times as large, {len(wins) - wins.count(_WINS)} of the {len(wins)} wins would be open. "
        f"If it were {least} times as large, {len(losses) - losses.count(_LOSES)} of the {len(losses)} losses would be."
    )


def _by(kind: str) -> list[Factors]:
    return [each for each in _of_families(REPORTS) if each.kind == kind]


def _beside(found: Factors, limit: float) -> str:
    """Where alpha x rho lies beside a limit: the range is below it or above it, or else its middle; a dash where it is
    not known."""
    if found.product is None:
        return "-"
    middle, low, high = found.product
    if high < limit:
        return _WINS
    if low > limit:
        return _LOSES
    return "below" if middle < limit else "above"


def picture() -> Figure:
    """alpha x rho of each family, and the limits below which local losses win by the rule."""
    rows = [
        {
            "network": each.network,
            "series": SHORT[each.kind],
            **dict(zip(_ENDS, each.product, strict=True)),
        }
        for each in _of_families(REPORTS)
        if each.product is not None
    ]
    networks = Scale("network", "", names=list(dict.fromkeys(str(row["network"]) for row in rows)))
    products = Scale("product", "alpha x rho", base=10, ticks=(0.4, 0.5, 0.7, 1, 1.25, 1.5, 2, 3, 5, 10))
    series = (Series("DGL", "--c0"), Series("AL", "--c1"))
    beside = {"field": "series", "type": "nominal", "scale": {"domain": [each.label for each in series]}}
    placed = {"x": networks.options(), "y": products.options(), "color": colour_of(series), "xOffset": beside}
    limits = {"values": [{"product": limit, "rival": rival} for rival, limit in LIMITS.items()]}
    at_the_limit = {"y": products.options()}
    label = {"type": "text", "align": "left", "dx": 6, "color": "--soft", "fontSize": 11}
    right = {**at_the_limit, "x": {"value": "width"}, "text": {"field": "rival"}}
    ends = {"y": {**products.options(), "field": "low"}, "y2": {"field": "high"}}
    layers = [
        {"data": limits, "mark": {"type": "rule", "strokeDash": [4, 4], "color": "--ink"}, "encoding": at_the_limit},
        {"data": limits, "mark": label, "encoding": right},
        {"mark": {"type": "rule", "strokeWidth": 1.5}, "encoding": {**placed, **ends}},
        {"mark": {"type": "point", "filled": True, "size": 60, "opacity": 1}, "encoding": placed},
    ]
    return Figure(
        "products",
        "Local losses win below the limit of their rival",
        "The time to a target on one device over that of backpropagation, of six small networks by DGL and by AL, with "
        "the ends of both factors, and the limits by the rule on two stages.",
        rows,
        {"data": {"name": ROWS_NAME}, "layer": layers},
        series,
    )


def alphas() -> dict[str, dict[str, Ends]]:
    """alpha by family and method."""
    measured = json.loads((RESULTS / "alpha.json").read_text(encoding="utf-8"))["families"]
    return {family: found["alpha"] for family, found in measured.items()}


def _of_families(reports: Path) -> Iterator[Factors]:
    for name in OVER_FAMILIES:
        if (reports / name / KEPT).is_file():
            yield from _of_report(report_of(name).results)


def _of_report(results: Results) -> Iterator[Factors]:
    alpha = alphas()
    rows = {(_family(row), _method(row)): row for row in results.rows}
    for family in dict.fromkeys(family for family, _ in rows):
        best = rows[family, BASELINE]
        for kind in SHORT:
            row = rows.get((family, kind))
            if row is not None:  # the study was not stopped before
                rho, step = _rho(results, row, best), alpha.get(family, {}).get(kind)
                yield Factors(NETWORKS[family], COMPONENTS[family], kind, rho, step)


def _family(row: PointRow) -> str:
    return str(row.point.get("variant", "gpt"))


def _method(row: PointRow) -> str:
    method = row.point["method"]
    return str(method["kind"] if isinstance(method, dict) else method)


def _rho(results: Results, row: PointRow, best: PointRow) -> Ends | None:
    """With its 90 % interval, as a verdict has it; None where the target was not reached."""
    found = of_two(results, _STEPS, row, best, "ratio")
    if found.confidence is None or found.interval is None:
        return None
    return found.shown(found.confidence.middle), *found.interval


def _with_ends(found: Ends | None) -> str:
    if found is None:
        return "-"
    middle, low, high = found
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"
