"""Figures: values, and a drawing of them in Vega-Lite. A page shows them without network, and gives each as a file.

Colours are names of page.css such as `--ink`. The page puts in those of light or of dark; a file has those of light.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from html import escape
from importlib import metadata
from importlib.resources import files
from itertools import chain, count
from typing import Any, TypeVar

from alray.core.finite import finite
from alray.core.run_folder.records import publish, replace_file
from alray.core.storage.location import Location, remove_folder, user_cache
from alray.report.table import Table, csv_of

Shown = TypeVar("Shown")

ROWS_NAME = "rows"
"""The name under which a drawing finds its values."""

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
_FILE_FONT = '"Liberation Sans", Arial, Helvetica, Arimo, sans-serif'
"""The fonts of a saved figure, which have the same widths. The first is that of vl-convert, which lays texts out."""
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
    "legend": {**_TEXT, "labelLimit": 0, "symbolLimit": 0, "symbolStrokeWidth": 2},  # 0: no limit
    "title": {"color": "--ink", "fontSize": 13, "anchor": "start", "fontWeight": "bold"},
    "text": {"color": "--ink"},
}
"""The settings that all drawings share, as Vega-Lite's `config`."""
_PADDING = {"left": 5, "right": 12, "top": 5, "bottom": 5}
"""Pixels around a file."""
_IN_A_COLUMN = (340, 220)
"""Width and height of a file in pixels, unless it is wide: in a column of a paper its letters have six points."""


@dataclass(frozen=True)
class Series:
    """An entry of a legend, which hides and shows the rows whose `series` is this label.

    Attributes:
        colour: of page.css.
    """

    label: str
    colour: str


@dataclass(frozen=True)
class Figure:
    """A drawing and the values that it shows.

    Attributes:
        name: of its files.
        description: what it shows, for those who do not see it.
        rows: one for each mark, column -> value.
        drawing: in Vega-Lite, without values, size and title.
        styles: what dashes and shapes mean: label -> dashes (empty: a line without gaps) or the name of a shape.
        size: width and height in pixels; a page gives it the width that it has.
        scrubbed: where the horizontal axis begins and ends, if the page shall have a slider that moves along it.
    """

    name: str
    title: str
    description: str
    rows: list[dict[str, Any]]
    drawing: dict[str, Any]
    series: tuple[Series, ...] = ()
    styles: dict[str, str] = field(default_factory=dict)
    size: tuple[int, int] = (560, 340)
    scrubbed: tuple[float, float] | None = None

    @property
    def is_wide(self) -> bool:
        """Whether it needs the whole width of a page."""
        return self.size[0] > 560

    @property
    def spec(self) -> dict[str, Any]:
        """The drawing with its values, as the page draws it. A value that is not finite is a gap."""
        rows = {ROWS_NAME: finite(self.rows)}
        return {"$schema": _SCHEMA, "description": self.description, **self.drawing, "datasets": rows}

    @property
    def csv(self) -> str:
        """The values."""
        return csv_of(self.rows)

    @property
    def svg(self) -> str:
        """The drawing by itself, on white."""
        import vl_convert

        around = {"title": self.title, "background": "--paper", "padding": _PADDING}
        size = dict(zip(("width", "height"), self.size if self.is_wide else _IN_A_COLUMN, strict=True))
        drawn = coloured({**self.drawing, **size, **around}, light_colours())
        config = {**coloured(THEME, light_colours()), "font": _FILE_FONT}
        # As text: of a dictionary, vl_convert refuses integers of more than 64 bits, which a damaged record may have.
        spec = json.dumps({**self.spec, **drawn})
        svg: str = vl_convert.vegalite_to_svg(spec, config=config, allowed_base_urls=[])
        # Vega counts the clips of all drawings of a process. Equal figures have equal files.
        names = {name: f"clip{index}" for index, name in enumerate(dict.fromkeys(re.findall(r'id="(clip\d+)"', svg)))}
        svg = re.sub(r"\bclip\d+\b(?=[\")])", lambda found: names.get(found[0], found[0]), svg)
        return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(self.description, quote=True)}" ', 1)


@dataclass(frozen=True)
class Exhibit:
    """Figures that belong together, and what follows from them.

    Attributes:
        findings: sentences.
        note: what the figures show, and their source.
        tables: name of the files -> table.
        meanings: name of a figure of a table -> its definition.
    """

    title: str
    figures: tuple[Figure, ...] = ()
    findings: tuple[str, ...] = ()
    note: str = ""
    tables: dict[str, Table] = field(default_factory=dict)
    meanings: dict[str, str] = field(default_factory=dict)


Show = Callable[[Shown], Exhibit | None]
"""Makes an exhibit of a run, a comparison or a study; None where it does not suit. Its docstring is the note."""


def exhibits_of(shown: Shown, shows: Sequence[Show[Shown]]) -> list[Exhibit]:
    """The exhibits that suit what is shown, in this order."""
    found = [(show(shown), " ".join((show.__doc__ or "").split())) for show in shows]
    return [replace(exhibit, note=exhibit.note or note) for exhibit, note in found if exhibit is not None]


FIGURES, TABLES = "figures", "tables"
"""The folders of their files."""


def write_exhibits(exhibits: Sequence[Exhibit], folder: Location) -> list[Exhibit]:
    """Write the figures and tables anew, each into its folder: those of an earlier report may have other names. Return
    the exhibits with their figures named as their files."""
    folder.mkdir(exist_ok=True)
    for name in (FIGURES, TABLES):
        if (folder / name).is_dir():
            remove_folder(folder / name)
        (folder / name).mkdir()
    names = iter(_file_names(figure.name for exhibit in exhibits for figure in exhibit.figures))
    named = [replace(each, figures=tuple(replace(one, name=next(names)) for one in each.figures)) for each in exhibits]
    for figure in chain(*(exhibit.figures for exhibit in named)):
        write_figure(figure, folder / FIGURES)
    tables = [each for exhibit in exhibits for each in exhibit.tables.items()]
    for (_, table), name in zip(tables, _file_names(name for name, _ in tables), strict=True):
        write_table(name, table, folder / TABLES)
    return named


def write_figure(figure: Figure, folder: Location) -> None:
    """Write NAME.svg, NAME.pdf, which has its fonts in it, and NAME.csv."""
    import vl_convert

    svg = figure.svg
    replace_file(folder / f"{figure.name}.svg", svg)
    publish(folder / f"{figure.name}.pdf", vl_convert.svg_to_pdf(svg))
    replace_file(folder / f"{figure.name}.csv", figure.csv)


def write_table(name: str, table: Table, folder: Location) -> None:
    """Write NAME.csv, NAME.md and NAME.tex."""
    replace_file(folder / f"{name}.csv", table.csv)
    replace_file(folder / f"{name}.md", table.markdown)
    replace_file(folder / f"{name}.tex", table.latex)


@cache
def library() -> str:
    """The JavaScript of Vega-Lite, about 0.9 MB, to stand in a page: nothing in it ends the script.

    It takes more than a second to make, so it is kept in the user's cache folder if there is one that can be written.
    """
    with suppress(OSError, RuntimeError):
        return (user_cache() / _library_file()).read_text(encoding="utf-8")
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    bundle = re.sub(r"<(?=/script|!--)", r"\\x3c", bundle, flags=re.IGNORECASE)
    with suppress(OSError, RuntimeError):
        user_cache().mkdir(parents=True, exist_ok=True)
        replace_file(user_cache() / _library_file(), bundle)
    return bundle


def _library_file() -> str:
    return f"vega-{metadata.version('vl-convert-python')}.js"


def coloured(value: Any, colours: Mapping[str, str]) -> Any:
    """A drawing or theme with colours for their names."""
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


def _file_names(names: Iterable[str]) -> list[str]:
    """A file name for each, with a number where two would be equal. An own method may name its losses as it likes."""
    found: list[str] = []
    for name in map(file_name, names):
        numbered = (f"{name}-{number}" for number in count(2))
        found.append(next(each for each in chain((name,), numbered) if each not in found))
    return found


def file_name(*parts: str) -> str:
    """A file name of these parts, without signs that a path or a shell reads."""
    return "-".join(re.sub(r"[^\w.]+", "-", part).strip("-.") or "x" for part in parts)
