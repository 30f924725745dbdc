"""Tables as CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io

from alray.report.table import Table, csv_text

TABLE = Table(("run", "a_b | 5 %"), (("al, <fast>", "0.5 ± 0.1"), (r"x*y\z", "–")))


def test_csv_can_be_read_again() -> None:
    assert list(csv.reader(io.StringIO(TABLE.csv))) == [list(TABLE.head), *map(list, TABLE.rows)]
    assert csv_text(["a", "b"], [[1.5, None]]) == "a,b\n1.5,\n"


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
