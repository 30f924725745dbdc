"""run, resume and report: answers, exit codes and the locations of errors."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from collections.abc import Callable
from datetime import datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from alray.core.run_folder.records import Summary
from alray.core.run_folder.store import make_run_dir, mark, require_new
from alray.core.storage.lock import locked

from .conftest import COUNTED

BACKWARD = """\
import torch


class Trouble(Exception):
    pass


class Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx, s):
        return s.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise Trouble("not today")


class Block(torch.nn.Conv2d):
    def __init__(self, input):
        super().__init__(input[0], 2, 1)

    def forward(self, s, mask=None):
        return Through.apply(super().forward(s))
"""
BLOCKS = """\
import torch


class Faulty(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Conv2d(1, 1, 1)
        self.calls = 0

    def forward(self, s, mask=None):
        self.calls += 1
        if self.training and self.calls > 6 and s.device.type == "cpu":
            raise RuntimeError("this block is out of order")
        return self.layer(s)


def build(input, **fields):
    return Faulty()
"""

LOUD = """\
import os
import subprocess

import torch


class Loud(torch.nn.Module):
    def __init__(self, input):
        super().__init__()
        print("by Python")
        os.write(1, b"past Python\\n")
        subprocess.run(["echo", "by a child"], check=True)
        self.layer = torch.nn.Conv2d(1, 1, 1)

    def forward(self, s, mask=None):
        return self.layer(s)
"""


def test_the_environment_tells_when_where_and_on_what_code_it_ran(alray: Callable[..., Any], spec: Path) -> None:
    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(["git", *identity, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def recorded(folder: str) -> dict[str, Any]:
        assert alray("run", spec, "run.steps=1", "--inline", "--output", folder).code == 0
        return dict(json.loads(Path(folder, "environment.json").read_text(encoding="utf-8")))

    assert recorded("none")["git"] is None
    git("init")
    git("add", "x.yaml")
    git("commit", "--message", "a spec")
    clean = recorded("clean")
    assert clean["git"] == {"commit": git("rev-parse", "HEAD"), "dirty": False}
    assert abs(datetime.now().astimezone() - datetime.fromisoformat(clean["date"])) < timedelta(hours=1)
    assert clean["given"]["run"] == {"steps": 1} and "seed" not in clean["given"]
    assert (clean["host"], clean["packages"]["torch"]) == (platform.node(), metadata.version("torch"))
    spec.write_text(spec.read_text() + "# a note\n")
    assert recorded("dirty")["git"]["dirty"] is True


def test_a_run_ends_with_what_one_wants_to_know(alray: Callable[..., Any], spec: Path) -> None:
    said = alray("run", spec, "--inline", "--output", "out")
    assert said.code == 0
    summary = Summary.model_validate_json(Path("out/summary.json").read_text())
    rows = dict(line.split("  ", 1) for line in said.out.splitlines())
    rows = {name: value.strip() for name, value in rows.items()}
    assert rows["finished"].startswith("18 mini-batches, 2 epochs in ")
    assert rows["accuracy"].startswith(f"test {summary.accuracy.test:.4f}, validation ")
    assert rows["by depth"].startswith("test 1: ") and ", 3: " in rows["by depth"]
    assert " measured, " in rows["step time"] and rows["step time"].endswith(" predicted")
    assert rows["bubble"] == "none: the stages take turns in one process"
    assert rows["weights_sha256"] == summary.weights_sha256
    assert rows["run folder"] == "out"
    assert rows["report"] == "out/report.html" and Path("out/report.html").is_file()


def test_progress_is_told_beside_the_answer(alray: Callable[..., Any], spec: Path) -> None:
    said = alray("run", spec, "--inline", "--output", "out", "--json")
    assert said.code == 0
    assert said.json == json.loads(Path("out/summary.json").read_text())
    lines = said.err.splitlines()
    assert lines[0].endswith(" s: reading x.yaml")
    assert any(line.startswith("2 stages [") and ", streamed: predicted " in line for line in lines)
    assert any(line.startswith("after mini-batch 9: validation ") for line in lines)


@pytest.mark.full
def test_json_stands_alone_on_standard_output(command: list[str], spec: Path) -> None:
    """Whatever a user's code prints, by Python or past it, in this process or another."""
    Path("loud.py").write_text(LOUD)
    spec.write_text(spec.read_text().replace("{block: vgg, channels: [2]}", "{block: 'python:loud.Loud'}", 1))
    arguments = ["run", "x.yaml", "--inline", "--json", "run.epochs=1", "--output", "out"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stdout)["status"]) == (0, "finished"), done.stderr
    assert {"by Python", "past Python", "by a child"} <= set(done.stderr.splitlines())
    wrong = subprocess.run([*command, "run", "nothing.yaml", "--json"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, json.loads(wrong.stdout)["ok"]) == (2, False)


def test_a_wrong_request_starts_nothing(alray: Callable[..., Any], spec: Path) -> None:
    assert alray("run", spec, "epochs", "--json").json["errors"][0]["file"] == "command line"
    both = alray("run", spec, "--inline", "--address", "ray://x", "--json")
    assert (both.code, both.json["errors"][0]["key"]) == (2, "--address")
    Path("full").mkdir()
    Path("full/file").touch()
    assert alray("run", spec, "--inline", "--output", "full").code == 2
    assert not Path("runs").exists()


def test_a_problem_found_late_is_told_with_its_place(alray: Callable[..., Any], spec: Path) -> None:
    text = spec.read_text().replace("channels: [2]}", "channels: [2]}", 1)
    text = text.replace("{block: vgg, channels: [4], pool: true}", "{block: 'python:mine.Nothing'}")
    spec.write_text(text)
    said = alray("plan", spec)
    assert said.code == 2
    assert said.errors.splitlines()[-1].startswith("x.yaml:7: model.components[2]"), said.err


def test_a_run_that_fails_exits_1_and_keeps_its_report(alray: Callable[..., Any], spec: Path) -> None:
    Path("mine.py").write_text(BLOCKS)
    spec.write_text(spec.read_text().replace("{block: vgg, channels: [2]}", "{block: 'python:mine.build'}", 1))
    said = alray("run", spec, "--inline", "--output", "out")
    assert said.code == 1
    assert said.out.startswith("failed ")
    assert "alray resume out" in said.out
    assert "raised RuntimeError in the forward pass of component 0: this block is out of order" in said.err
    # Of the traceback only what lies in the user's code.
    assert [line.split('"')[1] for line in said.err.splitlines() if "File " in line] == [str(Path("mine.py").resolve())]
    assert Path("out/report.html").is_file()


def test_a_backward_pass_that_raises_is_one_error_as_json(alray: Callable[..., Any], spec: Path) -> None:
    Path("mine.py").write_text(BACKWARD)
    spec.write_text(spec.read_text().replace("{block: vgg, channels: [2]}", "{block: 'python:mine.Block'}", 1))
    said = alray("run", spec, COUNTED, "--inline", "--output", "out", "--json")
    assert said.code == 1
    (problem,) = said.json["errors"]
    line = 1 + BACKWARD.splitlines().index('        raise Trouble("not today")')
    assert (problem["file"], problem["line"]) == (str(Path("mine.py").resolve()), line)
    assert problem["key"] == "model.components[0]"
    assert (
        problem["message"] == "block `python:mine.Block` raised Trouble in the backward pass of component 0: not today"
    )
    assert problem["traceback"].endswith("mine.Trouble: not today\n")
    assert said.err.count("Traceback") == 0, "it is in the JSON"


@pytest.mark.full
def test_a_run_that_never_began_leaves_its_folder_to_another(alray: Callable[..., Any], spec: Path) -> None:
    """Unless somebody put another file there."""
    sound = spec.read_text()
    Path("mine.py").write_text(BACKWARD)
    spec.write_text(sound.replace("{block: vgg, channels: [2]}", "{block: 'python:mine.Block'}", 1))
    assert "not today" in alray("run", spec, "--inline", "--output", "runs/out", COUNTED).err
    assert not Path("runs/out/records.jsonl").exists(), "it failed while components were measured"
    (row,) = alray("list", "runs", "--json").json["runs"]
    assert row["state"] == "failed"
    spec.write_text(sound)
    Path("runs/out/notes").touch()
    assert "the run folder is not empty" in alray("run", spec, "--inline", "--output", "runs/out").err
    Path("runs/out/notes").rename("runs/out/code/mine_too.py")
    assert alray("run", spec, "--inline", "--output", "runs/out").code == 0
    assert not Path("runs/out/code/mine_too.py").exists(), "nothing is left of the other run"
    given = json.loads(Path("runs/out/environment.json").read_text(encoding="utf-8"))["given"]
    assert "costs" in given["pipeline"] and given["pipeline"]["costs"] is not None
    assert "the run folder is not empty" in alray("run", spec, "--inline", "--output", "runs/out").err


@pytest.mark.full
def test_what_a_kill_leaves_of_a_run_that_had_hardly_begun(
    alray: Callable[..., Any], spec: Path, ended: Path, tmp_path: Path
) -> None:
    """Only the lock; then what is written before the spec; then all that comes before the first record."""
    Path("out").mkdir()
    Path("out/.lock").touch()
    said = alray("resume", "out", "--inline")
    assert (said.code, "ended before it had written its spec" in said.errors) == (2, True)
    assert "begin it again: `alray run SPEC --output`" in said.errors
    assert alray("run", spec, "--inline", "--output", "out").code == 0
    early = make_run_dir("tiny", tmp_path / "early")
    (early / "code").mkdir()
    assert "ended before it had written its spec" in alray("resume", early).errors
    with locked(early, print):
        assert "the run folder is not empty" in alray("run", spec, "--inline", "--output", early).errors
    require_new(early)
    for name in ("spec.yaml", "plan.json", "environment.json", "sample.json"):
        shutil.copy(ended / name, early)
    mark(early, "alray-0")
    said = alray("resume", early, "--inline", "--json")
    assert said.json["weights_sha256"] == json.loads((ended / "summary.json").read_text())["weights_sha256"]


def test_runs_that_begin_in_the_same_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("alray.core.run_folder.store.time.strftime", lambda form: "20261120-165026")
    made = [make_run_dir("my_run", None).name for _ in range(3)]
    assert made == [f"my_run-20261120-165026{end}" for end in ("", "_2", "_3")]


@pytest.mark.full
def test_a_run_that_goes_on_is_read_and_not_resumed(alray: Callable[..., Any], ended: Path) -> None:
    with locked(ended, print):
        said = alray("resume", ended, "--inline", "run.epochs=2")
        for command in ("report", "list", "evaluate"):
            assert alray(command, ended).code == 0
    assert said.code == 2 and "another process works on this run" in said.err


def test_resume_goes_on_for_more_epochs(alray: Callable[..., Any], ended: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(ended, run_dir)
    said = alray("resume", run_dir, "run.epochs=3", "pipeline.stages=1", "--inline", "--json")
    assert said.code == 0
    assert (said.json["status"], said.json["steps"], said.json["partition"]) == ("finished", 27, [3])
    assert "continuing from mini-batch 18" in said.err.splitlines()
    given = json.loads((run_dir / "environment.json").read_text(encoding="utf-8"))["given"]
    assert (given["run"], given["pipeline"]["stages"]) == ({"epochs": 3}, 1)
    assert given["name"] == "tiny" and "resources" not in given, "of the defaults only what the resume changed"


def test_the_page_of_a_resumed_run_has_the_command_that_began_it(
    alray: Callable[..., Any], ended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(ended, run_dir)
    environment = json.loads((run_dir / "environment.json").read_text(encoding="utf-8"))
    (run_dir / "environment.json").write_text(json.dumps({**environment, "command": ["alray", "run", "began.yaml"]}))
    for epochs in ("run.epochs=3", "run.epochs=4"):
        monkeypatch.setattr("sys.argv", ["/bin/alray", "resume", "run", epochs])
        assert alray("resume", run_dir, epochs, "--inline").code == 0
    page = (run_dir / "report.html").read_text(encoding="utf-8")
    told = [page.index(f"<code>alray {words}</code>") for words in ("run began.yaml", "resume run run.epochs=3")]
    assert told == sorted(told) and "<code>alray resume run run.epochs=4</code>" in page


@pytest.mark.parametrize(
    ("shorter", "made"), [("run.epochs=1", "run.epochs=1 makes 9"), ("run.steps=5", "run.steps=5 makes 5")]
)
def test_a_resume_makes_no_run_shorter(
    alray: Callable[..., Any], ended: Path, monkeypatch: pytest.MonkeyPatch, shorter: str, made: str
) -> None:
    """And says so before anything is started."""
    monkeypatch.setattr("alray.orchestrate.begin_engine", None)
    before = (ended / "summary.json").read_text(encoding="utf-8")
    answer = alray("resume", ended, shorter, *(["run.epochs=null"] if "steps" in shorter else []))
    assert answer.code == 2
    assert f"the run has done 18 mini-batches, and {made}; give more, or leave it out" in answer.errors
    assert (ended / "summary.json").read_text(encoding="utf-8") == before


def test_a_resume_for_fewer_samples_is_refused_once_the_data_are_open(alray: Callable[..., Any], ended: Path) -> None:
    answer = alray("resume", ended, "run.epochs=null", "run.samples=25", "--inline")
    assert answer.code == 2 and "the run has done 18 mini-batches, and run.samples=25 makes 3; give" in answer.errors


@pytest.mark.parametrize(
    ("taken", "message"),
    [
        ("used", "used: the run folder is not empty"),
        ("x.yaml/below", "x.yaml/below: the run folder cannot be made: Not a directory"),
        ("/proc/nowhere", "/proc/nowhere: the run folder cannot be made: No such file or directory"),
    ],
)
def test_the_run_folder_is_checked_before_anything_is_started(
    alray: Callable[..., Any], spec: Path, monkeypatch: pytest.MonkeyPatch, taken: str, message: str
) -> None:
    monkeypatch.setattr("alray.orchestrate.begin_engine", None)
    Path("used/mine").mkdir(parents=True)
    answer = alray("run", spec, "--output", taken)
    assert answer.code == 2 and message in answer.errors
    assert sorted(path.name for path in Path().iterdir()) == ["used", "x.yaml"]


def test_resume_refuses_another_run(alray: Callable[..., Any], ended: Path, tmp_path: Path) -> None:
    said = alray("resume", ended, "seed=1", "--inline", "--json")
    assert said.code == 2
    assert "--allow-change" in said.json["errors"][0]["hint"]
    assert alray("resume", tmp_path, "--inline").code == 2


@pytest.mark.full
def test_a_spec_changed_by_hand_is_not_resumed(alray: Callable[..., Any], ended: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(ended, run_dir)
    file = run_dir / "spec.yaml"
    honest = file.read_text(encoding="utf-8")
    file.write_text(honest.replace("lr: 0.001", "lr: 0.01"), encoding="utf-8")
    for command in ("resume", "reproduce"):
        said = alray(command, run_dir, "--inline")
        assert said.code == 2 and "spec.yaml was changed since alray wrote it; restore it, and give" in said.errors
    assert alray("resume", run_dir, "--inline", "--allow-change").code == 0
    file.write_text(honest, encoding="utf-8")
    assert alray("resume", run_dir, "run.epochs=3", "--inline").code == 0
    assert "epochs: 3" in file.read_text(encoding="utf-8")
    for written in (file.read_text(encoding="utf-8"), honest):  # the second: as if a crash had come before it
        file.write_text(written, encoding="utf-8")
        assert "nothing is left to do" in alray("resume", run_dir, "run.epochs=3", "--inline").err


@pytest.mark.full
def test_report_is_made_again(alray: Callable[..., Any], ended: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(ended, run_dir)
    (run_dir / "report.html").unlink()
    answer = alray("report", run_dir, "--json").json
    assert answer["report"] == str(run_dir / "report.html")
    assert [row["stage"] for row in answer["single_step"]["rows"]] == [0, 1, None]
    assert (run_dir / "report.html").is_file()
    assert (run_dir / "figures/schedule.svg").is_file() and (run_dir / "tables/single_step.md").is_file()
    shown = [line.rstrip() for line in alray("report", run_dir).out.splitlines()]
    assert [line for line in shown if line.startswith("st")] == ["stage 0", "stage 1", "step"]
    assert (
        sum(line.startswith(" measured") for line in shown) == 3 and shown[-1] == f"report  {run_dir / 'report.html'}"
    )
    assert alray("report", tmp_path / "nothing").code == 2


@pytest.mark.full
def test_chosen_mini_batches_are_traced(alray: Callable[..., Any], spec: Path, ended: Path) -> None:
    said = alray("run", spec, "--inline", "--output", "out", "--profile", "3,7-8", "--json")
    assert said.code == 0
    assert said.json["weights_sha256"] == json.loads((ended / "summary.json").read_text())["weights_sha256"]
    events = json.loads(Path("out/profile/stage-0.json").read_text())["traceEvents"]
    ranges = [event["name"] for event in events if event.get("cat") == "user_annotation"]
    assert [name for name in ranges if "F" in name] == ["0F2", "1F2", "0F6", "1F6", "0F7", "1F7"]
    assert "the traces in " in said.err
    again = alray("resume", "out", "run.epochs=3", "--inline", "--profile", "20")
    assert again.code == 0
    later = json.loads(Path("out/profile/stage-0.json").read_text())["traceEvents"]
    assert len(later) > len(events) and "1F19" in {event["name"] for event in later}


def test_a_mini_batch_that_is_not_of_the_run_is_not_traced(alray: Callable[..., Any], spec: Path, ended: Path) -> None:
    wrong = [("run", spec, "17-19"), ("run", spec, "first"), ("resume", ended, "18")]
    for command, source, steps in wrong:
        said = alray(command, source, "--inline", "--profile", steps, "--json")
        assert (said.code, said.json["errors"][0]["key"]) == (2, "--profile")
    assert not Path("runs").exists()
