"""The page of a crossover: a map of which way to train is fastest where, a table, and the two factors behind it.

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
from alray.planning.prediction.crossover import Crossover
from alray.report.crossover import (
    Cell,
    cells,
    factors_table,
    findings,
    kind_of,
    layout_of,
    refused,
    ways,
    winners_table,
)
from alray.report.drawing import Scale, colour_of, colours_of, hiding, tell
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
            notes=(*refused(self.found), *self.found.basis.values()),
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


def winners(found: Crossover) -> Exhibit:
    """The fastest way at each place of the map, on so many stages and replicas with M micro-batches, and how many times
    as long the best of the others takes (~: closer than a prediction can tell). alpha is the step of a method on one
    device over that of backpropagation, rho its mini-batches to the target over those of backpropagation: by the rule,
    streaming on S stages is faster than 1F1B with M micro-batches where alpha x rho < 1 + (S - 1) / M."""
    tables = {"fastest": winners_table(found)} | ({} if found.one_family else {"factors": factors_table(found)})
    return Exhibit("The fastest way at each place", tables=tables)


EXHIBITS: tuple[Show[Crossover], ...] = (over_links, winners)
"""In the order of the page."""


def _winners(found: Crossover) -> Figure:
    """The map of the fastest ways."""
    rows = [_of(found, at) for at in cells(found)]
    drawn = {row["series"] for row in rows}
    series = tuple(each for each in _series(found) if each.label in drawn)
    x = Scale("devices", "devices", names=[str(number) for number in found.axes.devices])
    y = Scale("up", "link", names=found.axes.links)
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


def _series(found: Crossover) -> tuple[Series, ...]:
    """A colour for each method and schedule."""
    return colours_of(sorted({kind_of(row) for row in found.rows}, key=lambda kind: (" streamed" not in kind, kind)))


def _of(found: Crossover, at: Cell) -> dict[str, Any]:
    """A place as a row of a figure."""
    place: dict[str, Any] = {"devices": str(at.devices), "up": at.link, "series": None, "text": "nothing fits"}
    if at.best is None:
        return place
    faster = "" if at.ratio is None else f"\n{at.ratio:.2f}x"
    other = None if at.other is None else f"{kind_of(at.other)}, {layout_of(at.other)}"
    return place | {
        "series": kind_of(at.best),
        "text": f"{kind_of(at.best)}\n{layout_of(at.best)}{faster}",
        "clear": "no" if at.is_close else "yes",
        "layout": layout_of(at.best),
        "step": seconds(at.best.step_s),
        "time": seconds(found.seconds(at.best)),
        "memory": size(max(at.best.fit.memory_bytes)),
        "sent": size(found.sent_bytes(at.best)),
        "ratio": at.ratio,
        "other": other,
        "step_s": at.best.step_s,
        "memory_bytes": max(at.best.fit.memory_bytes),
        "sent_bytes": found.sent_bytes(at.best),
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
