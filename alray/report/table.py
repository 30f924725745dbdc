"""Tables: headings and rows of texts, and how they are written as CSV, Markdown and LaTeX.

A table of `Numbers` also has its values. Then the CSV has them in full, and the LaTeX table has one unit a column.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal, TypeGuard

from alray.core.counting import setting_text
from alray.core.errors import RequestError
from alray.report.spread import Spread, shown
from alray.report.text import number

_LONG = 40  # characters
_BEGINS_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_SIGNED = re.compile(r"[+-][\d.,]+(e[+-]?\d+)?( ?[%\w/]+)?")
_IN_LATEX = {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "µ": r"$\mu$",
    "–": "--",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


_MINUS = re.compile(r"(?<![\w.)-])-(?=\d)")
"""The sign of a number in a text, which LaTeX would set as a hyphen."""


@dataclass(frozen=True)
class Table:
    """A table: the headings, and rows of as many texts. The first column names the row.

    Attributes:
        numbers: the same as values, for the CSV and LaTeX files; None for the texts.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: Numbers | None = None

    @property
    def long_columns(self) -> list[int]:
        """The columns with a text that is so long that it has to be broken, counted from 0."""
        return [index for index, texts in enumerate(zip(*self.rows, strict=True)) if max(map(len, texts)) > _LONG]

    @property
    def csv(self) -> str:
        return csv_text(self.head, self.rows) if self.numbers is None else self.numbers.csv

    @property
    def markdown(self) -> str:
        """The table as GitHub and Pandoc read it. Values keep the meaning of their signs: `|` and `*` are escaped."""
        texts = {0, *self.long_columns} if self.rows else {0}
        ruler = ["---" if column in texts else "---:" for column in range(len(self.head))]
        lines = [map(in_markdown, self.head), ruler, *(map(in_markdown, row) for row in self.rows)]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    @property
    def latex(self) -> str:
        r"""The table as a `tabular` with the rules of the package booktabs."""
        if self.numbers is not None:
            return self.numbers.latex
        return _tabular("l" + "r" * (len(self.head) - 1), *([_in_latex(text) for text in row] for row in self._lines))

    @property
    def _lines(self) -> tuple[tuple[str, ...], ...]:
        return self.head, *self.rows


CellValue = Spread | float | str | None
"""A cell: a figure over several runs, a number, a text, or nothing."""


@dataclass(frozen=True)
class Column:
    """A column of values.

    Attributes:
        name: in the CSV.
        title: in words.
        form: how a number is shown as text.
        kind: `seconds` and `share` have a unit; a `setting` was chosen, not measured: each of
            these kinds is shown with its own number of digits.
    """

    name: str
    title: str
    form: Callable[[float | None], str] = number
    kind: Literal["count", "seconds", "share", "setting"] = "count"
    spread: bool = False  # whether its values are means over runs; the CSV has a further column for the deviation


@dataclass(frozen=True)
class Numbers:
    """A table of values: as many in each row as there are columns.

    Attributes:
        latex_columns: the names of those that the LaTeX table has, if they have a value; empty: all of them.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[CellValue, ...], ...]
    latex_columns: tuple[str, ...] = ()

    def only(self, names: Sequence[str]) -> Numbers:
        """The columns of these names, in this order. Raises RequestError if there is no such column."""
        indices = {column.name: index for index, column in enumerate(self.columns)}
        for name in names:
            if name not in indices:
                from alray.config.sections.section import did_you_mean, nearest  # pydantic takes a while

                hint = did_you_mean(nearest(name, indices), f"choose from {', '.join(indices)}")
                raise RequestError(f"there is no column `{name}`", key="--columns", hint=hint)
        chosen = [indices[name] for name in names]
        columns = tuple(self.columns[index] for index in chosen)
        rows = tuple(tuple(row[index] for index in chosen) for row in self.rows)
        return replace(self, columns=columns, rows=rows, latex_columns=())

    @property
    def texts(self) -> Table:
        """The table as texts."""
        head = tuple(column.title for column in self.columns)
        rows = (tuple(map(_text, self.columns, row)) for row in self.rows)
        return Table(head, tuple(rows), self)

    @property
    def csv(self) -> str:
        """Every number in full, times in seconds and shares in 0..1; a field is empty where there is no value."""
        head, lines = [], [[] for _ in self.rows]  # type: tuple[list[str], list[list[Any]]]
        for column, values in self._by_column:
            head += [column.name, f"{column.name}_deviation"] if column.spread else [column.name]
            for line, value in zip(lines, values, strict=True):
                if column.spread:
                    line += [value.mean, value.deviation] if isinstance(value, Spread) else [None, None]
                else:
                    line.append(value)
        return csv_text(head, lines)

    @property
    def latex(self) -> str:
        r"""A `tabular` with the rules of the package booktabs.

        The heading of a column has its unit. Mean and deviation of all its cells have as many decimals, so they stand
        below each other. A raised 2/3 says that two of three runs have the figure.
        """
        names = self.latex_columns or [column.name for column in self.columns]
        columns = [each for each in self.only(names)._by_column if any(value is not None for value in each[1])]
        head, cells = [], []
        for column, values in columns:
            unit, factor = _unit(column, values)
            title = _in_latex(column.title)
            head.append(f"{title} ({unit})" if unit else title)
            cells.append(_latex_cells(column, values, factor))
        texts = [all(isinstance(each, str) or each is None for each in values) for _, values in columns]
        return _tabular("".join("l" if text else "r" for text in texts), head, *map(list, zip(*cells, strict=True)))

    @property
    def _by_column(self) -> list[tuple[Column, tuple[CellValue, ...]]]:
        return [(column, tuple(row[index] for row in self.rows)) for index, column in enumerate(self.columns)]


def _text(column: Column, value: CellValue) -> str:
    if isinstance(value, str):
        return value
    return shown(value, column.form) if isinstance(value, Spread) else column.form(value)


def _mean(value: CellValue) -> float | None:
    return value.mean if isinstance(value, Spread) else value if isinstance(value, int | float) else None


_SECONDS = ((3600.0, "h"), (1.0, "s"), (1e-3, "ms"), (1e-6, r"$\mu$s"))


def _unit(column: Column, values: Sequence[CellValue]) -> tuple[str, float]:
    """The unit of a column in LaTeX, and what its values are multiplied by. Their median decides."""
    if column.kind == "share":
        return r"\%", 100.0
    if column.kind in ("count", "setting"):
        return "", 1.0
    middle = median([abs(mean) for mean in map(_mean, values) if _is_finite(mean)] or [1.0])
    size, unit = next(((size, unit) for size, unit in _SECONDS if middle >= size), _SECONDS[-1])
    return unit, 1.0 / size


def _latex_cells(column: Column, values: Sequence[CellValue], factor: float) -> list[str]:
    decimals = _decimals(column, values, factor)
    found = []
    for value in values:
        mean = _mean(value)
        if isinstance(value, str) or mean is None:
            found.append(_in_latex(value) if isinstance(value, str) else "--")
            continue
        if column.kind == "setting":
            found.append(_setting(mean))
            continue
        text, missing = _grouped(mean * factor, decimals), ""
        if isinstance(value, Spread):
            deviation = _grouped((value.deviation or 0.0) * factor, decimals)
            text += f" \\pm {deviation}" if deviation != _grouped(0.0, decimals) else ""
            missing = rf"\textsuperscript{{{value.runs}/{value.runs + value.missing}}}" if value.missing else ""
        found.append(f"${text}${missing}")
    return found


def _decimals(column: Column, values: Sequence[CellValue], factor: float) -> int:
    """Decimals of a column: two digits of its smallest deviation; without deviations three digits of the smallest mean,
    and none of counts that are whole. The largest mean has at most five digits. Only finite numbers count."""
    means = [abs(mean) * factor for mean in map(_mean, values) if mean and _is_finite(mean)]
    if not means:
        return 0
    spreads = [each.deviation for each in values if isinstance(each, Spread)]
    deviations = [deviation * factor for deviation in spreads if deviation and _is_finite(deviation)]
    if not deviations and column.kind == "count" and all(mean == round(mean) for mean in means):
        return 0
    wanted = 1 - _power(min(deviations)) if deviations else 2 - _power(min(means))
    return max(0, min(wanted, 4 - _power(max(means))))


def _is_finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def _power(value: float) -> int:
    """The power of ten of the first digit."""
    return math.floor(math.log10(value))


def _grouped(value: float, decimals: int) -> str:
    """A number in LaTeX; from five digits on in groups of three."""
    text = f"{value:,.{decimals}f}"
    return text.replace(",", r"\," if abs(value) >= 1e4 else "")


def _setting(value: float) -> str:
    """A setting in LaTeX, as `setting_text` writes it or as it is if it is whole."""
    digits, _, power = (setting_text(value) if isinstance(value, float) else str(value)).partition("e")
    return rf"${digits} \times 10^{{{int(power)}}}$" if power else f"${digits}$"


def _tabular(layout: str, head: Sequence[str], *rows: Sequence[str]) -> str:
    first, *others = (" & ".join(row) + r" \\" for row in (head, *rows))
    # After the end of a line, `[` begins a distance, and `*` forbids to break the page.
    others = [f"{{}}{row}" if row.startswith(("[", "*")) else row for row in others]
    lines = [rf"\begin{{tabular}}{{{layout}}}", r"\toprule", first, r"\midrule", *others, r"\bottomrule"]
    return "\n".join([*lines, r"\end{tabular}", ""])


def csv_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV, with every column that any of them has."""
    head = list(dict.fromkeys(column for row in rows for column in row))
    return csv_text(head, ([row.get(column) for column in head] for row in rows))


def csv_text(head: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """Rows of values as CSV. None is an empty field. A text that a spreadsheet would take for a formula begins with an
    apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([_in_csv(value) for value in row] for row in (head, *rows))
    return text.getvalue()


def _in_csv(value: Any) -> Any:
    """Source: CSV injection, owasp.org. A number with its sign and unit is no formula."""
    formula = isinstance(value, str) and value.startswith(_BEGINS_FORMULA) and not _SIGNED.fullmatch(value)
    return f"'{value}" if formula else value


def in_markdown(text: str) -> str:
    """A text in Markdown, where its signs have no meaning."""
    escaped = "".join(f"\\{sign}" if sign in r"\|*_`<" else sign for sign in " ".join(text.split()))
    return escaped.replace("](", r"]\(")  # neither a link nor a picture


def _in_latex(text: str) -> str:
    return _MINUS.sub("$-$", "".join(_IN_LATEX.get(sign, sign) for sign in " ".join(text.split())))
