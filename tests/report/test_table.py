"""Tables as CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io

from alray.report.table import Table, csv_text

TABLE = Table(("run", "a_b | 5 %"), (("al, <fast>", "0.5 ± 0.1"), (r"x*y\z", "–")))


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
    ]


def test_latex_shows_every_sign() -> None:
    assert TABLE.latex.splitlines() == [
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"run & a\_b \textbar{} 5 \% \\",
        r"\midrule",
        r"al, \textless{}fast\textgreater{} & 0.5 $\pm$ 0.1 \\",
        r"x*y\textbackslash{}z & -- \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
