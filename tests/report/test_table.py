"""Tables as CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
import math

import pytest

from alray.report.spread import spread
from alray.report.table import Column, Numbers, Table, csv_text
from alray.report.text import number, score, seconds

TABLE = Table(("run", "a_b | 5 %"), (("al, <fast>", "0.5 ± 0.1"), (r"x*y\z", "–"), ("a-1", "by -0.5 (-1e-3 to 0)")))


def test_csv_can_be_read_again() -> None:
    assert list(csv.reader(io.StringIO(TABLE.csv))) == [list(TABLE.head), *map(list, TABLE.rows)]
    assert csv_text(["a", "b"], [[1.5, None]]) == "a,b\n1.5,\n"


def test_a_text_is_no_formula_and_no_link() -> None:
    evil = ("=HYPERLINK(1)", "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\t=1")
    assert csv_text(evil, []) == csv_text([f"'{text}" for text in evil], [])
    harmless = ("-0.5", "+1.2e-05 ms", "-3 %", "- 1", "a=b", "")
    assert list(csv.reader(io.StringIO(csv_text(["x"] * 6, [harmless]))))[1] == [*harmless[:3], "'- 1", "a=b", ""]
    assert "![x]\\(http://a)" in Table(("run",), (("![x](http://a)",),)).markdown


def test_markdown_shows_every_sign() -> None:
    assert TABLE.markdown.splitlines() == [
        r"| run | a\_b \| 5 % |",
        "| --- | ---: |",
        r"| al, \<fast> | 0.5 ± 0.1 |",
        r"| x\*y\\z | – |",
        "| a-1 | by -0.5 (-1e-3 to 0) |",
    ]


def test_latex_shows_every_sign() -> None:
    assert TABLE.latex.splitlines() == [
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"run & a\_b \textbar{} 5 \% \\",
        r"\midrule",
        r"al, \textless{}fast\textgreater{} & 0.5 $\pm$ 0.1 \\",
        r"x*y\textbackslash{}z & -- \\",
        r"a-1 & by $-$0.5 ($-$1e-3 to 0) \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    after_a_line = Table(("cut",), (("[1, 3]",), ("* all",))).latex.splitlines()[4:6]
    assert after_a_line == [r"{}[1, 3] \\", r"{}* all \\"]  # \\[1, 3] is a distance, and \\* a line without a break


@pytest.mark.parametrize(("broken", "text"), [(math.inf, "inf"), (math.nan, "nan")])
@pytest.mark.parametrize("seeds", [1, 3])
def test_a_number_that_is_not_finite_leaves_a_table(broken: float, text: str, seeds: int) -> None:
    columns = (
        Column("mse", "error", score, spread=True),
        Column("rate", "rate", number, spread=True),
        Column("t", "time", seconds, "seconds", spread=True),
    )
    values = [(0.25, 0.5, 0.75), (broken, 1.0, 2.0)]
    cells = [(spread(of[:seeds]), spread(of[:seeds]), None if broken in of else spread(of[:seeds])) for of in values]
    table = Numbers(columns, tuple(cells))
    assert table.texts.rows[1][0] == (text if seeds == 1 else f"{text} ± nan")
    first, second = table.latex.splitlines()[4:6]
    assert first.startswith("$0.250$" if seeds == 1 else r"$0.50 \pm 0.25$") and second.startswith(f"${text}")
    assert Numbers(columns, (cells[1],)).latex.splitlines()[4].startswith(f"${text}")
