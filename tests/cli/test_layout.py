"""The layout of what commands print: a sentence is one line, words of a table are whole, colour is for terminals."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from alray.api.console.layout import Page
from alray.api.reproduction import _parting
from alray.cli.main import execute
from alray.core.run_folder.records import EvaluationRecord
from alray.report.table import Table

from .conftest import Tty

Alray = Callable[..., Any]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


BAD = """\
name: tiny
data: {source: synthetic, shape: [1, 4, 4], classes: 3, samples: 100, batch_size: 10}
model:
  components:
    - {block: vgg, chanels: [2]}
    - block: vgg
      channels: 2
    - {channels: [4]}
method:
  kind: associated_learning
  label_dim: "abc"
optimizer: {kind: adam, lr: -1}
run: {epochs: none, evaluate_every: {every: 1}}
"""
HOSTILE = 'name: "\\e[2J"\nrun: {steps: 1, \u202epohce: 1}\n'


def test_two_evaluations_that_are_not_a_number_do_not_part() -> None:
    """Records are read from files, so the two are not the same object."""
    place = {"time_s": 1.0, "step": 1, "epoch": 1.0, "samples": 1, "per_depth": [], "duration_s": 0.1}
    broken, again, other = (EvaluationRecord(**place, validation=float(text)) for text in ("nan", "nan", "0.5"))
    assert _parting((broken, again)).scores == _parting((other, other)).scores == {}
    assert list(_parting((broken, other)).scores) == ["validation"]


def test_colour_is_for_terminals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Page.of(Tty()) == Page(80, colour=True)
    assert not Page.of(io.StringIO()).colour
    assert Page.of(Tty()).heading("a") == "\x1b[1ma\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Page.of(Tty()) == Page(80)


def test_an_error_is_coloured_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    err = Tty()
    monkeypatch.setattr("sys.stderr", err)
    Path("bad.yaml").write_text(BAD, encoding="utf-8")
    assert execute(["validate", "bad.yaml"]) == 2
    shown = err.getvalue()
    assert "\x1b[31;1merror:\x1b[0m bad.yaml:5:20: model.components[0].chanels: unknown key" in shown
    assert "\x1b[31;1m^^^^^^^\x1b[0m" in shown
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Tty()
    monkeypatch.setattr("sys.stderr", plain)
    execute(["validate", "bad.yaml"])
    assert plain.getvalue() == re.sub(r"\x1b\[[\d;]*m", "", shown)


def test_a_sentence_is_one_line_and_in_a_pipe_a_row_too(monkeypatch: pytest.MonkeyPatch) -> None:
    long = "a word " * 30
    page = Page.of(io.StringIO())
    assert Page(80).sentence(long) == long and page.fields([("name", long)]) == f"name  {long}".rstrip()
    table = Table(("run", "a", "b"), (("x" * 40, "y" * 30, "z " * 30),))
    for term in ("xterm", "dumb"):
        monkeypatch.setenv("TERM", term)
        assert len(page.table(table).splitlines()) == 2


def test_words_in_a_table_stay_whole() -> None:
    table = Table(("run", "validation", "test"), (("the first", "0.5", "0.25"), ("second", "0.75", "–")))
    assert (
        Page(80).table(table) == "run        validation  test\nthe first         0.5  0.25\nsecond           0.75     –"
    )
    assert Page(20).table(table) == (
        "run     validation  test\nthe            0.5  0.25\nfirst\nsecond        0.75     –"
    )


def test_values_from_elsewhere_cannot_act_on_the_terminal(alray: Alray) -> None:
    Path("hostile.yaml").write_text(HOSTILE, encoding="utf-8")
    err = alray("validate", "hostile.yaml").err
    assert "\x1b" not in err and "\u202e" not in err and "\\u202epohce" in err


def test_the_json_of_an_error_has_its_columns(alray: Alray) -> None:
    Path("bad.yaml").write_text(BAD, encoding="utf-8")
    first, *_ = alray("validate", "bad.yaml", "--json").json["errors"]
    assert (first["line"], first["column"], first["end_column"]) == (5, 20, 27)
    assert first["text"][first["column"] - 1 : first["end_column"] - 1] == "chanels"
