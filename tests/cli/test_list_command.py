"""list: the runs and studies of a folder."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .test_main import imported


@pytest.fixture
def folder(ended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`runs/` with a run that has finished, one that goes on, one that was killed, and two that are damaged."""
    monkeypatch.chdir(tmp_path)
    runs = Path("runs")
    for name in ("finished", "going_on", "killed", "no_spec", "torn"):
        shutil.copytree(ended, runs / name, ignore=shutil.ignore_patterns("checkpoints", "tensorboard"))
    for name in ("going_on", "killed"):
        (runs / name / "summary.json").unlink()
    os.utime(runs / "going_on" / "records.jsonl")
    long_ago = time.time() - 3600
    os.utime(runs / "killed" / "records.jsonl", (long_ago, long_ago))
    (runs / "no_spec" / "spec.yaml").unlink()
    (runs / "torn" / "summary.json").write_text('{"version": ', encoding="utf-8")
    (runs / "notes").mkdir()
    (runs / "notes.txt").write_text("mine", encoding="utf-8")
    better = json.loads((runs / "finished" / "summary.json").read_text())
    better |= {"method": "backpropagation", "schedule": "gpipe", "replicas": 2}
    better["accuracy"] |= {"test": 0.99}
    shutil.copytree(runs / "finished", runs / "better")
    (runs / "better" / "summary.json").write_text(json.dumps(better), encoding="utf-8")
    return runs


def states(answer: Any) -> dict[str, str]:
    return {Path(row["folder"]).name: row["state"] for row in answer.json["runs"]}


@pytest.mark.full
def test_every_run_with_its_state(alray: Callable[..., Any], folder: Path) -> None:
    answer = alray("list", "--json")
    assert answer.code == 0
    assert states(answer) == {
        "better": "finished",
        "finished": "finished",
        "going_on": "running",
        "killed": "killed",
        "no_spec": "damaged",
        "torn": "damaged",
    }
    by_name = {Path(row["folder"]).name: row for row in answer.json["runs"]}
    summary = json.loads((folder / "finished/summary.json").read_text())
    finished = by_name["finished"]
    assert (finished["test"], finished["step_time_s"]) == (summary["accuracy"]["test"], summary["step_time_s"])
    assert (by_name["killed"]["method"], by_name["killed"]["stages"]) == ("associated_learning", 2)
    assert by_name["killed"]["date"] == finished["date"] is not None
    assert "the file does not exist" in by_name["no_spec"]["reason"]


def test_a_row_of_a_table_is_a_line(alray: Callable[..., Any], folder: Path) -> None:
    lines = alray("list", "--sort", "folder").out.splitlines()
    assert lines[0].split()[:2] == ["folder", "method"]
    (row,) = [line for line in lines if "gpipe" in line]
    assert row.split()[:7] == ["runs/better", "BP", "gpipe", "2", "x", "2", "finished"]
    assert lines[-1] == "6 runs"
    assert sum("is damaged: " in line for line in lines) == 2


def test_a_figure_that_is_not_finite_has_no_value(alray: Callable[..., Any], folder: Path) -> None:
    file = folder / "better" / "summary.json"
    summary = json.loads(file.read_text())
    damaged = {"accuracy": summary["accuracy"] | {"test": float("nan")}, "step_time_s": float("inf")}
    file.write_text(json.dumps(summary | damaged), encoding="utf-8")
    (row,) = alray("list", "runs/better", "--json").json["runs"]
    assert (row["test"], row["step_time_s"]) == (None, None)
    assert row["validation"] == summary["accuracy"]["validation"]
    assert alray("list", "runs/better").code == 0


@pytest.mark.few
@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["method=backpropagation"], ["better"]),
        (["state=finished", "--sort", "test"], ["better", "finished"]),
        (["stages=2", "schedule=str*", "--sort", "state"], ["finished", "killed", "going_on"]),
        (["runs/killed"], ["killed"]),
        (["name=nothing"], []),
    ],
)
def test_filters_and_orders(alray: Callable[..., Any], folder: Path, words: list[str], names: list[str]) -> None:
    assert list(states(alray("list", *words, "--json"))) == names


def test_a_folder_whose_name_has_an_equals_sign_is_no_filter(alray: Callable[..., Any], folder: Path) -> None:
    Path("runs").rename("lr=1e-3")
    assert list(states(alray("list", "lr=1e-3", "state=killed", "--json"))) == ["killed"]


def test_a_run_in_two_of_the_folders_is_listed_once(alray: Callable[..., Any], folder: Path) -> None:
    once, twice = (alray("list", *words, "--json").json["runs"] for words in (["runs"], ["runs/killed", "./runs"]))
    assert sorted(row["folder"] for row in once) == sorted(row["folder"] for row in twice)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lr=3"], "FILTER: `lr=3` is not a filter; write one of kind, name, method,"),
        (["--sort", "colour"], "--sort: `colour` is not a column; choose one of date,"),
        (["nowhere"], "nowhere: there is no such folder; name a folder that holds run folders"),
        (["/dev/null"], "/dev/null: this is a file, not a folder; name a folder that holds run folders"),
    ],
)
def test_wrong_requests(alray: Callable[..., Any], folder: Path, words: list[str], message: str) -> None:
    said = alray("list", *words)
    assert said.code == 2 and message in said.errors


@pytest.mark.full
def test_it_imports_neither_torch_nor_ray(python: Callable[[str], Any], folder: Path) -> None:
    assert imported(python, "torch|ray|pandas|altair", "list", "--json") == []
