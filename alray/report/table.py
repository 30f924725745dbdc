"""Tables: headings and rows of texts, and how they are written as CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True)
class Table:
    """A table: the headings, and rows of as many texts. The first column names the row."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def only(self, columns: Sequence[int]) -> Table:
        """The table with these columns alone."""
        head, *rows = (tuple(row[column] for column in columns) for row in (self.head, *self.rows))
        return Table(head, tuple(rows))

    @property
    def long_columns(self) -> list[int]:
        """The columns with a text that is so long that it has to be broken, counted from 0."""
        return [place for place, texts in enumerate(zip(*self.rows, strict=True)) if max(map(len, texts)) > _LONG]

    @property
    def csv(self) -> str:
        return csv_text(self.head, self.rows)

    @property
    def markdown(self) -> str:
        """The table as GitHub and Pandoc read it. Values keep the meaning of their signs: `|` and `*` are escaped."""
        ruler = ("---", *["---:"] * (len(self.head) - 1))
        lines = [map(_in_markdown, self.head), ruler, *(map(_in_markdown, row) for row in self.rows)]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    @property
    def latex(self) -> str:
        r"""The table as a `tabular` with the rules of the package booktabs."""
        head, *rows = (" & ".join(map(_in_latex, row)) + r" \\" for row in (self.head, *self.rows))
        columns = "l" + "r" * (len(self.head) - 1)
        lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule", *rows, r"\bottomrule"]
        return "\n".join([*lines, r"\end{tabular}", ""])


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


def _in_markdown(text: str) -> str:
    escaped = "".join(f"\\{sign}" if sign in r"\|*_`<" else sign for sign in " ".join(text.split()))
    return escaped.replace("](", r"]\(")  # neither a link nor a picture


def _in_latex(text: str) -> str:
    return "".join(_IN_LATEX.get(sign, sign) for sign in " ".join(text.split()))
