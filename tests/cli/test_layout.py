"""The layout of what commands print: within the columns of the terminal, no word broken, colour on terminals alone."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from alray.api.console.display import PlainLines, accuracies_text
from alray.api.console.interrupts import Interrupts
from alray.api.console.layout import Page, columns, unbroken
from alray.api.console.live import frame
from alray.api.console.summary_text import summary_rows
from alray.api.reproduction import Parting, Reproduction, _parting
from alray.cli import doctor as doctor_module
from alray.cli.doctor import CheckResult
from alray.cli.jobs import status_rows
from alray.cli.main import execute
from alray.cli.plan_text import plan_text
from alray.cli.run import reproduction_rows
from alray.core.metric import ACCURACY
from alray.core.run_folder.records import Best, DepthScores, EvaluationRecord, Failure, Scores
from alray.inference import requests
from alray.inference.chosen_weights import Weights
from alray.inference.export import Exported
from alray.inference.requests import Evaluated
from alray.models.task import ClassPrediction
from alray.report.progress import Progress
from alray.report.table import Table
from alray.studies import forecast
from alray.studies import study as studies
from alray.studies.study import progress_line
from alray.submit.dashboard import Job

from ..pairwise import first_alone
from ..report import conftest as made
from ..studies import conftest as made_study
from .conftest import Tty

NARROW, WIDE = 80, 400
HASH = "3644a1f9f1736d1d3bac40a28c5d1e723993d918e7ae10793625680b7f91f301"

Alray = Callable[..., Any]
Show = Callable[[int], str]
"""Gives what a command prints at so many columns."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def said(alray: Alray, terminal: Callable[[int], None]) -> Callable[..., str]:
    """`said(width, *words)`: a command line and what it prints, without the seconds that have passed."""

    def run(width: int, *words: str) -> str:
        terminal(width)
        answer = alray(*words)
        lines = [line for line in (answer.out + answer.err).splitlines() if not re.match(r"\d+\.\d s: ", line)]
        return "\n".join([f"$ alray {' '.join(words)}", *lines, ""])

    return run


def joined(*parts: str) -> str:
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


@pytest.fixture
def help_(said: Callable[..., str]) -> Show:
    listed = "run plan study validate schema init resume reproduce evaluate predict export report compare doctor"
    names = [*listed.split(), "submit", "list"]
    several = [[], *([name] for name in names), ["jobs"], *(["jobs", name] for name in ("status", "logs", "fetch"))]
    return lambda width: joined(*(said(width, *words, "--help") for words in several))


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
GOOD = (
    BAD.replace("chanels", "channels")
    .replace("channels: 2", "channels: [2]")
    .replace("{channels", "{block: vgg, channels")
)
GOOD = GOOD.replace('"abc"', "4").replace("lr: -1", "lr: 1e-3").replace("none, evaluate_every: {every: 1}", "2")
STUDY = "study: tiny\nbase: good.yaml\naxes:\n  optimizer.lr: [1e-3, -1]\n  pipeline.stages: [1, 9]\n"
HOSTILE = 'name: "\\e[2J"\nrun: {steps: 1, \u202epohce: 1}\n'
LONG = f"name: a\nrun: {{steps: 1, {' ' * 200} wrong: 1, test: always, {'x' * 90}: 2}}\n"


@pytest.fixture
def errors(said: Callable[..., str]) -> Show:
    files = {
        "bad": BAD,
        "good": GOOD,
        "study": STUDY,
        "hostile": HOSTILE,
        "long": LONG,
        "torn": "name: [a, b\nrun: 1\n",
    }
    for name, text in files.items():
        Path(f"{name}.yaml").write_text(text, encoding="utf-8")
    Path("tabs.yaml").write_text('name:\ta\nrun: {漢字: "é", epochs: 1}\n', encoding="utf-8")
    Path("binary.yaml").write_bytes(b"\x00\xff\xfe")
    lines = (
        *(["validate", f"{name}.yaml"] for name in ("bad", "study", "hostile", "long", "torn", "tabs", "binary")),
        ["plan", "good.yaml", "optimizer.lr=abc", "optimiser.lr=3", "run.epochs", "run.epochs.x=2"],
        ["run", "nothing.yaml"],
        ["report", "nowhere"],
        ["plan", "good.yaml", "--devices", "four"],
        ["study"],
        ["fly"],
        ["run"],
    )
    return lambda width: joined(*(said(width, *words) for words in lines))


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Show:
    plan = made.example_plan((3, 2, 2, 1))

    def show(width: int) -> str:
        page = Page(width)
        return joined("$ alray plan", plan_text(plan, name="example", page=page))

    return show


def ended(name: str) -> Any:
    depths = [DepthScores(depth=depth, validation=0.9, test=0.88, train=0.95) for depth in range(1, 9)]
    return made_study.summary(0.9812, 0.0123).model_copy(
        update={
            "run_dir": f"runs/{name}",
            "name": name,
            "method": "associated_learning",
            "schedule": "streamed",
            "stages": 2,
            "duration_s": 3723.0,
            "scores": Scores(train=0.999, validation=0.9812, test=0.9725),
            "scores_per_depth": depths,
            "best": Best(step=8, validation=0.9812, test=0.97, checkpoint="checkpoints/step-8"),
            "bubble": 0.0312,
            "predicted_bubble": 0.0287,
            "weights_sha256": HASH,
        }
    )


@pytest.fixture
def run() -> Show:
    plan = made.example_plan((2, 1))
    progress = Progress(plan)
    for record in made.example_records(plan, 2):
        progress.take(record)
    evaluation = made.evaluated(20, 1.0, 0.9812, 0.9725)
    failure = Failure(step=12, stage=1, message="stage 1 died")

    def show(width: int) -> str:
        page, summary = Page(width), ended("quickstart-20261121-120000")
        live = Console(file=io.StringIO(), width=width)
        live.print(frame(progress, width))
        plain = io.StringIO()
        lines = PlainLines(plain, Interrupts())
        lines.planned(plan)
        lines._progress = progress
        lines._changed(progress, evaluation)
        failed = summary.model_copy(update={"status": "failed", "failures": [failure], "bubble": None})
        assert isinstance(live.file, io.StringIO)
        return joined(
            "$ alray run, on a terminal",
            "\n".join(line.rstrip() for line in live.file.getvalue().splitlines()),
            page.sentence(accuracies_text(evaluation)),
            "$ alray run, in a pipe",
            page.sentence(plain.getvalue().rstrip()),
            "$ alray run, at its end",
            page.fields(summary_rows(summary)),
            "$ alray run, after a failure",
            page.fields(summary_rows(failed)),
        )

    return show


@pytest.fixture
def study(said: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Show:
    from alray.studies import report

    trials = [
        made_study.trial(n, {"pipeline.stages": 1 + n % 4, "variant": f"variant_{n % 3}"}, steps=10 * n or None)
        for n in range(12)
    ]
    made_study.study_folder(
        made_study.results(trials, target={"metric": "validation_error", "below": 0.05}), Path("out")
    )
    monkeypatch.setattr(report, "exhibits_of", lambda results: ())  # figures take their time, and are not the point
    Path("good.yaml").write_text(GOOD, encoding="utf-8")
    Path("study.yaml").write_text(STUDY.replace("-1", "3e-4").replace("9", "2"), encoding="utf-8")
    points = [
        forecast.Forecast(f"optimizer.lr={lr}, pipeline.stages={n}", 3, n, 1, {"CPU": n})
        for lr in (0.001, 0.0003)
        for n in (1, 2)
    ]
    monkeypatch.setattr(forecast, "forecasts", lambda loaded: points)
    progress = studies.StudyProgress(trials[3], "pipeline.stages=4, variant=variant_0, seed=0", 4, 12, 3000.0)
    return lambda width: joined(
        said(width, "study", "study.yaml", "--dry-run"),
        "$ alray study study.yaml, while it goes on",
        Page(width).sentence(progress_line(progress)),
        said(width, "report", "out"),
    )


@pytest.fixture
def doctor(said: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Show:
    found = [
        CheckResult("python", "ok", "3.11.7"),
        CheckResult(
            "shared memory",
            "warning",
            "/dev/shm has 64.0 MB, but Ray's object store needs 5.0 GB; it will spill to the disk",
            "start the container with --shm-size=5.0gb; alray's tensors do not use this memory",
        ),
        CheckResult("ray", "fault", "not installed", "install ray 2.60 or newer"),
        CheckResult("cluster", "ok", "2 nodes: head (2 CPU, 1 GPU), worker-0.cluster.example (16 CPU, 8 GPU)"),
    ]
    monkeypatch.setattr(doctor_module, "results", lambda address: iter(found))
    return lambda width: said(width, "doctor", "--address", "head:6379")


@pytest.fixture
def trained(said: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Show:
    weights = Weights(1234, "best")
    depths = [DepthScores(depth=depth, validation=0.9, test=0.89) for depth in (1, 2)]
    predictions = [ClassPrediction(each, "seven", 7, 0.9876, 2) for each in ("images/digit.png", "the apple " * 12)]
    written = Exported("runs/al/export/route-3.safetensors", "safetensors", 3, 1234, 5678, {"s": ["N", 1, 28, 28]})
    monkeypatch.setattr("alray.inference.early.require_request", lambda *args, **kwargs: None)
    network = SimpleNamespace(weights=weights, predict=lambda inputs, depth: predictions)
    monkeypatch.setattr("alray.inference.network.TrainedNetwork", lambda *given, **options: network)
    monkeypatch.setattr(requests, "open_network", lambda *given, **options: network)
    monkeypatch.setattr(requests, "evaluate", lambda *given: Evaluated(weights, ACCURACY, depths, []))
    monkeypatch.setattr("alray.inference.export.export_route", lambda *given: written)
    return lambda width: joined(
        said(width, "evaluate", "runs/al"),
        said(width, "predict", "runs/al", "images/digit.png", "..."),
        said(width, "export", "runs/al", "--format", "safetensors"),
    )


@pytest.fixture
def specs(said: Callable[..., str]) -> Show:
    Path("good.yaml").write_text(GOOD, encoding="utf-8")

    def show(width: int) -> str:
        for file in Path().glob("*.json"):
            file.unlink()
        Path("quickstart.yaml").unlink(missing_ok=True)
        return joined(said(width, "validate", "good.yaml"), said(width, "init"))

    return show


@pytest.fixture
def reproduce() -> Show:
    parted = Parting(40, 2.0, {"validation": (0.9812, 0.9799), "test": (0.9725, 0.9701)})
    same = Reproduction("runs/al", "runs/al-20261121-120000", 400, (HASH, HASH), 20, None, None, {})
    other = replace(
        same,
        weights_sha256=(HASH, HASH[::-1]),
        parted=parted,
        parted_losses=21,
        environment={"torch": ("2.13.0", "2.15.0")},
    )
    return lambda width: joined(
        "$ alray reproduce runs/al",
        Page(width).fields(reproduction_rows(same)),
        "$ alray reproduce runs/al, on another machine",
        Page(width).fields(reproduction_rows(other)),
    )


def test_two_evaluations_that_are_not_a_number_do_not_part() -> None:
    """Records are read from files, so the two are not the same object."""
    place = {"time_s": 1.0, "step": 1, "epoch": 1.0, "samples": 1, "per_depth": [], "duration_s": 0.1}
    broken, again, other = (EvaluationRecord(**place, validation=float(text)) for text in ("nan", "nan", "0.5"))
    assert _parting((broken, again)).scores == _parting((other, other)).scores == {}
    assert list(_parting((broken, other)).scores) == ["validation"]


@pytest.fixture
def jobs(said: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Show:
    from alray.submit.dashboard import Dashboard

    names = ("quickstart-20261121-120000-abcdef", "methods-20261121-130000-012345")
    found = [
        Job(name, status, "", {"alray": "run", "result": f"/shared/alray-jobs/{name}"}, 0.0, ended_s, code, None)
        for name, status, ended_s, code in zip(names, ("FAILED", "SUCCEEDED"), (3723.0, 12.0), (1, 0), strict=True)
    ]

    class Stub:
        url = "http://head:8265"

        def jobs(self) -> list[Job]:
            return found

    monkeypatch.setattr(Dashboard, "open", lambda address: Stub())
    return lambda width: joined(
        said(width, "jobs", "status", "--address", "http://head:8265"),
        "$ alray jobs status ID",
        Page(width).fields(status_rows(found[0])),
    )


QUICK = ("run", "doctor", "trained", "reproduce", "jobs")
SLOW = ("help_", "errors", "plan", "study", "specs")


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.full) for name in SLOW)])
def test_the_output_at_80_columns(name: str, request: pytest.FixtureRequest) -> None:
    show: Show = request.getfixturevalue(name)
    text, wide = show(NARROW), show(WIDE)
    for line in text.splitlines():
        assert columns(line) <= NARROW or is_one_word(line) or is_row(line), line
    words = set(wide.split())
    broken = [word for line in text.splitlines() if not is_drawn(line) for word in line.split() if word not in words]
    assert broken == []


def is_one_word(line: str) -> bool:
    """Whether a line can be no shorter: it holds one word, or one command, beside its name or its margin."""
    return line.startswith("$ ") or " " not in re.split(r" {2,}", line)[-1] or line.lstrip().startswith("alray ")


def is_row(line: str) -> bool:
    """Whether a line is one of a table of several columns, which is as wide as its words."""
    return len(re.split(r" {2,}", line.strip())) > 3


def is_drawn(line: str) -> bool:
    """Whether a line is a line of a file as an error shows it."""
    return re.match(r"\s*\d* \||━", line) is not None


@pytest.mark.few
@pytest.mark.parametrize("width", first_alone([7, 1, 20, 33]))
@pytest.mark.parametrize("name", ["doctor", "help_", "errors", "plan"])
def test_narrow_terminals(name: str, width: int, request: pytest.FixtureRequest) -> None:
    assert request.getfixturevalue(name)(width)


def test_colour_is_for_terminals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    assert Page.of(Tty()) == Page(80, wraps=True, colour=True)
    assert Page.of(io.StringIO()) == Page(80, wraps=False, colour=False)
    assert Page.of(Tty()).heading("a") == "\x1b[1ma\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert not Page.of(Tty()).colour
    monkeypatch.setenv("COLUMNS", "3")
    assert Page.of(Tty()) == Page(20, wraps=True, colour=False)
    assert Page.of(io.StringIO()) == Page(20, wraps=False, colour=False)


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


def test_in_a_pipe_a_sentence_is_one_line(alray: Alray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    long = "a word " * 30
    page = Page.of(io.StringIO())
    assert page.sentence(long) == long.rstrip() and page.fields([("name", long)]) == f"name  {long}".rstrip()
    table = Table(("run", "a", "b"), (("x" * 40, "y" * 30, "z " * 30),))
    for term, forced in (("xterm", ""), ("dumb", "1")):
        monkeypatch.setenv("TERM", term)
        monkeypatch.setenv("FORCE_COLOR", forced)
        assert len(page.table(table).splitlines()) == 2


def test_lines_break_at_spaces_and_commands_stay_whole() -> None:
    path = "/a/very/long/path/" + "x" * 30
    page = Page(20)
    assert page.sentence(f"see {path} there") == f"see\n  {path}\n  there"
    assert (
        page.sentence(f"continue with  {unbroken('alray resume runs/quickstart')}")
        == "continue with\n  alray resume runs/quickstart"
    )
    assert page.sentence("it took 12 min 7 s or 97.5 % of it") == "it took 12 min 7 s\n  or 97.5 % of it"
    assert Page(10).sentence("漢字漢字 漢字") == "漢字漢字\n  漢字"
    assert Page(7).sentence("in 12 µs") == "in\n  12 µs"


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
