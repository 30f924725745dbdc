"""Figures: values, and a drawing of them in Vega-Lite. A page shows them without network; each is a file as well.

Colours are names of page.css such as `--ink`. The page puts in those of light or of dark; a file has those of light.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from alray.records import replace_file
from alray.report.table import Table, csv_text

DATA = "rows"
"""The name under which a drawing finds its values."""

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_SIZE = {"width": 560, "height": 340}
_FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
_TEXT = {
    "labelColor": "--soft",
    "titleColor": "--ink",
    "labelFontSize": 11,
    "titleFontSize": 12,
    "titleFontWeight": "normal",
}
THEME: dict[str, Any] = {
    "font": _FONT,
    "view": {"stroke": None},
    "axis": {
        **_TEXT,
        "titleFontWeight": "normal",
        "gridColor": "--rule",
        "domainColor": "--soft",
        "tickColor": "--soft",
    },
    "legend": {**_TEXT, "labelLimit": 260, "symbolStrokeWidth": 2},
    "title": {"color": "--ink", "fontSize": 13, "anchor": "start", "fontWeight": "bold"},
    "text": {"color": "--ink"},
}
"""What is common to all drawings, as Vega-Lite's `config`."""


@dataclass(frozen=True)
class Series:
    """An entry of a legend, which hides and shows the rows whose `series` is this label. colour: of page.css."""

    label: str
    colour: str


@dataclass(frozen=True)
class Figure:
    """A drawing and the values that it shows.

    name: of its files. description: what it shows, for those who do not see it. rows: one for each mark, column ->
    value. drawing: in Vega-Lite, without values, size and title. styles: what dashes and shapes mean: label -> dashes
    (empty: a line without gaps) or the name of a shape.
    """

    name: str
    title: str
    description: str
    rows: list[dict[str, Any]]
    drawing: dict[str, Any]
    series: tuple[Series, ...] = ()
    styles: dict[str, str] = field(default_factory=dict)

    @property
    def spec(self) -> dict[str, Any]:
        """The drawing with its values, as the page draws it."""
        return {"$schema": _SCHEMA, "description": self.description, **self.drawing, "datasets": {DATA: self.rows}}

    @property
    def csv(self) -> str:
        """The values; every column that any of them has."""
        head = list(dict.fromkeys(column for row in self.rows for column in row))
        return csv_text(head, ([row.get(column) for column in head] for row in self.rows))

    @property
    def svg(self) -> str:
        """The drawing by itself, on white."""
        import vl_convert

        drawn = coloured({**self.drawing, **_SIZE, "title": self.title, "background": "--paper"}, light_colours())
        spec = {**self.spec, **drawn}
        svg: str = vl_convert.vegalite_to_svg(spec, config=coloured(THEME, light_colours()), allowed_base_urls=[])
        # Vega counts the clips of all drawings of a process. Equal figures have equal files.
        names = {name: f"clip{place}" for place, name in enumerate(dict.fromkeys(re.findall(r'id="(clip\d+)"', svg)))}
        svg = re.sub(r"\bclip\d+\b(?=[\")])", lambda found: names.get(found[0], found[0]), svg)
        return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(self.description, quote=True)}" ', 1)


@dataclass(frozen=True)
class Exhibit:
    """Figures that belong together, and what follows from them.

    findings: sentences. note: what the figures show, and their source. tables: name of the files -> table.
    """

    title: str
    figures: tuple[Figure, ...]
    findings: tuple[str, ...] = ()
    note: str = ""
    tables: dict[str, Table] = field(default_factory=dict)


def write_figure(figure: Figure, folder: Path) -> None:
    """Write NAME.svg and NAME.csv."""
    replace_file(folder / f"{figure.name}.svg", figure.svg)
    replace_file(folder / f"{figure.name}.csv", figure.csv)


def write_table(name: str, table: Table, folder: Path, *, csv: str | None = None) -> None:
    """Write NAME.csv, NAME.md and NAME.tex. csv: None for the texts of the table."""
    replace_file(folder / f"{name}.csv", table.csv if csv is None else csv)
    replace_file(folder / f"{name}.md", table.markdown)
    replace_file(folder / f"{name}.tex", table.latex)


@cache
def library() -> str:
    """The JavaScript of Vega-Lite, about 0.9 MB, to stand in a page: nothing in it ends the script."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return re.sub(r"<(?=/script|!--)", r"\\x3c", bundle, flags=re.IGNORECASE)


def coloured(value: Any, colours: Mapping[str, str]) -> Any:
    """A drawing or theme with colours in the place of their names."""
    if isinstance(value, str):
        return colours.get(value, value)
    if isinstance(value, dict):
        return {key: coloured(each, colours) for key, each in value.items()}
    return [coloured(each, colours) for each in value] if isinstance(value, list | tuple) else value


@cache
def light_colours() -> dict[str, str]:
    """The colours of a page in light, by name."""
    style = files("alray.report").joinpath("templates/page.css").read_text(encoding="utf-8")
    return dict(reversed(re.findall(r"(--\w+): (#\w+)", style)))


def file_name(*parts: str) -> str:
    """A file name of these parts, without signs that a path or a shell reads."""
    return "-".join(re.sub(r"[^\w.]+", "-", part).strip("-.") or "x" for part in parts)
