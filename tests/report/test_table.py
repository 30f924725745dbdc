"""Tables as CSV, Markdown and LaTeX, and how they are cut for a terminal."""

from __future__ import annotations

import csv
import io

from alray.report.table import Table, blocks, csv_text

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


def test_tables_are_cut_between_columns() -> None:
    table = Table(("run", "validation", "test"), (("1", "0.5", "0.25"), ("2", "0.75", "0.5")))
    assert blocks(table, 80) == [table]
    assert blocks(table, len("run validation test")) == [table]
    assert [block.head for block in blocks(table, len("run validation test") - 1)] == [
        ("run", "validation"),
        ("run", "test"),
    ]
    assert blocks(table, 1)[1].rows == (("1", "0.25"), ("2", "0.5"))
