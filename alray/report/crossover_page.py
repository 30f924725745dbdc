"""The page of a crossover: maps of which way to train is fastest where, the two factors behind them, and a table.

The docstring of the function that makes an exhibit is what the page says of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from alray import __version__
from alray.core.run_folder.records import replace_file
from alray.core.storage.location import Location
from alray.planning.prediction.crossover import REFERENCE, Axes, Crossover, Factors
from alray.planning.schedules.table import default_schedule
from alray.report.crossover import (
    Cell,
    cells,
    factors_table,
    findings,
    kind_of,
    layout_of,
    method_name,
    refused,
    ways,
    winners_table,
)
from alray.report.drawing import IDEAL, PREDICTED, Curves, Scale, colour_of, colours_of, heat_map, hiding, tell
from alray.report.figure import ROWS_NAME, TABLES, Exhibit, Figure, Series, Show, exhibits_of, write_exhibits
from alray.report.html import render_page
from alray.report.table import csv_of
from alray.report.text import seconds, size

_WIDTH, _ROW, _REST = 960, 62, 60  # pixels: of a map, of one of its rows, of its axis


@dataclass(frozen=True)
class CrossoverReport:
    """The report of a crossover: figures, tables and the page that has them."""

    found: Crossover

    @cached_property
    def exhibits(self) -> list[Exhibit]:
        """In the order of the page."""
        return exhibits_of(self.found, EXHIBITS)

    def page(self) -> str:
        """The HTML page."""
        return render_page(
            "crossover.html",
            self.exhibits,
            title=f"{self.found.name}: crossover · alray",
            version=__version__,
            name=self.found.name,
            basis=self.found.basis,
            ways=len(self.found.rows),
        )

    def write(self, page: Location, files: Location) -> None:
        """Write the page, its figures and tables, and every way as CSV."""
        page.parent.mkdir(parents=True, exist_ok=True)
        replace_file(page, self.page())
        write_exhibits(self.exhibits, files)
        replace_file(self.ways_file(files), csv_of(ways(self.found)))

    def ways_file(self, files: Location) -> Location:
        """The file of every way."""
        return files / TABLES / "ways.csv"


def over_links(found: Crossover) -> Exhibit:
    """Each place shows the fastest way to train on at most so many devices, if any two of them are connected by this
    link: method and schedule, stages and replicas, M micro-batches, and by how much it is faster than the best of the
    other family (local losses, or backpropagation), or where all are of one family, of another kind. A pale place is
    closer than a prediction can tell, or would be at one end of what is known of the times of computations. Times are
    those to the target, so they count how many mini-batches each method takes; where that is not known, they are those
    of one mini-batch. Each stage of each replica has its own device, and a way is on a number of devices of the map or
    on a divisor of one. Source: simulations of all ways, of which those near the fastest have their best cut."""
    return Exhibit("Devices and links", (_winners(found),), tuple(findings(found)))


def times(found: Crossover) -> Exhibit | None:
    """At each place of the first map, each family by its fastest way there: above 1 local losses are faster.
    Source: that of the first map."""
    if found.one_family:
        return None
    return Exhibit("Local losses beside backpropagation", (times_map(found.axes, cells(found)),))


def rule(found: Crossover) -> Exhibit | None:
    """In steady state streaming takes the time of one stage, and 1F1B that of M + S - 1 micro-batches on S stages. So
    streaming is faster where alpha x rho < 1 + (S - 1) / M. 1F1B needs M >= S, so this limit is below 2. alpha is the
    step of the method on one device over that of backpropagation, rho its mini-batches to the target over those of
    backpropagation. Dotted: (1 + (S - 1) / M) / alpha, the rho at which both are as fast. Dashed: the same from the
    simulation, with messages, uneven stages and what small micro-batches cost: the step of 1F1B over that of streaming,
    over the first link. Streaming is faster where the line of its rho lies below."""
    figures = tuple(
        figure
        for each in found.factors
        if each.method != REFERENCE and each.alpha and each.batch_size == found.batch_size
        if (figure := _rule(found, each)) is not None
    )
    if not figures:
        return None
    return Exhibit("The rule: alpha x rho < 1 + (S - 1) / M", figures, tables={"factors": factors_table(found)})


def winners(found: Crossover) -> Exhibit:
    """The fastest way at each place of the first map, on so many stages and replicas with M micro-batches, how many
    times as long the best of the others takes (~: closer than a prediction can tell), and what would let that one
    win: other numbers of mini-batches or times of a step, or the nearest place on an axis where it wins."""
    return Exhibit("What would change it", findings=refused(found), tables={"fastest": winners_table(found)})


EXHIBITS: tuple[Show[Crossover], ...] = (over_links, times, rule, winners)
"""In the order of the page."""


def _winners(found: Crossover) -> Figure:
    """The map of the fastest ways."""
    rows = [_of(found, at) for at in cells(found)]
    drawn = {row["series"] for row in rows}
    series = tuple(each for each in _series(found) if each.label in drawn)
    x, y = _scales(found.axes)
    title = "The fastest way, over devices and links"
    told = ", ".join(f"{row['devices']} devices, {row['up']}: {row['series'] or 'nothing fits'}" for row in rows)
    return Figure(
        "fastest_over_links",
        title,
        f"{title}. {told}.",
        rows,
        _winners_drawing(x, y, series),
        series,
        size=(_WIDTH, _ROW * len(y.names) + _REST),
    )


def _scales(axes: Axes) -> tuple[Scale, Scale]:
    devices = Scale("devices", "devices", names=[str(number) for number in axes.devices])
    return devices, Scale("up", "link", names=axes.links)


def _series(found: Crossover) -> tuple[Series, ...]:
    """A colour for each method and schedule."""
    return colours_of(
        sorted({kind_of(row.way) for row in found.rows}, key=lambda kind: (" streamed" not in kind, kind))
    )


def _of(found: Crossover, at: Cell) -> dict[str, Any]:
    """A place as a row of a figure."""
    place: dict[str, Any] = {"devices": str(at.devices), "up": at.link, "series": None, "text": "nothing fits"}
    if at.best is None:
        return place
    faster = "" if at.ratio is None else f"\n{at.ratio:.2f}x"
    other = None if at.other is None else f"{kind_of(at.other.way)}, {layout_of(found, at.other.way)}"
    return place | {
        "series": kind_of(at.best.way),
        "text": f"{kind_of(at.best.way)}\n{layout_of(found, at.best.way)}{faster}",
        "clear": "no" if at.is_close else "yes",
        "layout": layout_of(found, at.best.way),
        "step": seconds(at.best.step_s),
        "time": seconds(found.seconds(at.best)),
        "memory": size(at.best.memory_bytes),
        "sent": size(at.best.sent_bytes),
        "ratio": at.ratio,
        "other": other,
        "step_s": at.best.step_s,
        "memory_bytes": at.best.memory_bytes,
        "sent_bytes": at.best.sent_bytes,
    }


def _winners_drawing(x: Scale, y: Scale, series: Sequence[Series]) -> dict[str, Any]:
    tells = {
        "series": "fastest",
        "layout": "layout",
        "step": "step",
        "memory": "memory of the fullest device",
        "sent": "sent in a mini-batch",
        "other": "best of the others",
    }
    placed = {
        "x": x.options(),
        "y": y.options(),
        "tooltip": [
            x.tooltip,
            y.tooltip,
            *(tell(name, title) for name, title in tells.items()),
            tell("ratio", "its time over the fastest", ".3f"),
        ],
    }
    clear = {"condition": {"test": "datum.clear === 'yes'", "value": 0.4}, "value": 0.12}
    text = {"type": "text", "lineBreak": "\n", "fontSize": 11, "lineHeight": 14, "dy": -14}
    return {
        "data": {"name": ROWS_NAME},
        **hiding(),
        "layer": [
            {
                "transform": [{"filter": "isValid(datum.series)"}],
                "mark": {"type": "rect", "stroke": "--paper", "strokeWidth": 2},
                "encoding": {**placed, "color": colour_of(series), "opacity": clear},
            },
            {"mark": text, "encoding": {**placed, "text": {"field": "text", "type": "nominal"}}},
        ],
    }


def times_map(axes: Axes, places: Sequence[Cell]) -> Figure:
    """A map of the time of backpropagation over that of local losses, over devices and links."""
    rows = [
        {
            "devices": str(at.devices),
            "up": at.link,
            "value": at.advantage,
            "text": "–" if at.advantage is None else f"{at.advantage:.2f}",
        }
        for at in places
    ]
    known = [row["value"] for row in rows if isinstance(row["value"], float)]
    title = "The time of backpropagation over that of local losses"
    x, y = _scales(axes)
    middle = (min(known) + max(known)) / 2 if known else 1.0
    told = ", ".join(f"{row['devices']} devices, {row['up']}: {row['text']}" for row in rows)
    return Figure(
        "advantage_over_links",
        title,
        f"{title}. {told}.",
        rows,
        heat_map(x, y, {"text": "ratio of times"}, middle),
        size=(_WIDTH, 40 * len(axes.links) + _REST),
    )


def _rule(found: Crossover, factors: Factors) -> Figure | None:
    """The rho at which streaming and 1F1B are as fast, over stages, for each number of micro-batches."""
    assert factors.alpha is not None
    streamed = default_schedule(local_losses=True, stages=2).name
    pipeline = default_schedule(local_losses=False, stages=2).name
    link = found.axes.links[0]
    alone = {
        (row.way.method, row.way.schedule, row.way.stages, row.way.micro_batches): row
        for row in found.at(max(found.axes.devices), link, found.axes.memory[0])
        if row.way.replicas == 1 and row.way.batch_size == found.batch_size
    }
    stages = sorted({key[2] for key in alone if key[:2] == (factors.method, streamed) and key[2] > 1})
    rows: list[dict[str, Any]] = []
    for micro_batches in found.axes.micro_batches:
        for count in stages:
            own = alone.get((factors.method, streamed, count, 1))
            other = alone.get((REFERENCE, pipeline, count, micro_batches))
            if own is None or other is None:
                continue
            place = {"series": f"M {micro_batches}", "stages": count}
            formula = (1.0 + (count - 1) / micro_batches) / factors.alpha
            rows += [
                {**place, "kind": IDEAL, "line": f"M {micro_batches} {IDEAL}", "rho": formula},
                {
                    **place,
                    "kind": PREDICTED,
                    "line": f"M {micro_batches} {PREDICTED}",
                    "rho": other.step_s / own.step_s,
                },
            ]
    if not rows:
        return None
    name = method_name(factors.method)
    known = "" if factors.rho_source.startswith("assumed") else " known"
    label = f"rho of {name}{known or ' (assumed)'}"
    rows += [
        {"series": label, "stages": count, "kind": PREDICTED, "line": label, "rho": factors.rho} for count in stages
    ]
    x = Scale("stages", "stages S", base=2, ticks=stages, form="d")
    y = Scale("rho", "rho at which both are as fast", form=".3~g")
    curves = Curves(x, y, kinds=(PREDICTED, IDEAL), each="line")
    title = f"Where streaming of {name} beats 1F1B"
    told = ", ".join(sorted({f"{row['line']}, {row['stages']} stages: {row['rho']:.2f}" for row in rows}))
    return curves.figure(f"rule_{factors.method}", title, rows, f"{title}. {told}.")
