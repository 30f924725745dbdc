"""compare: the tables in the terminal, the object of --json, and where the page goes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from alray.cli.main import execute


@pytest.mark.full
def test_compare_prints_tables_and_writes_a_page(alray: Callable[..., Any], ended: Path, spec: Path) -> None:
    other = Path("backpropagation").resolve()
    assert execute(["run", str(spec), "method=backpropagation", "--inline", "--output", str(other)]) == 0
    first = shutil.copytree(ended, Path("associated_learning").resolve())
    said = alray("compare", first, other)
    page = Path("compare.html")
    assert (said.code, said.out.splitlines()[-1]) == (0, "page  compare.html")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    drawn = {path.name for path in Path("compare_files/figures").glob("accuracy_by_*")}
    assert {"accuracy_by_samples.svg", "accuracy_by_seconds.csv"} <= drawn
    assert Path("compare_files/tables/costs.tex").read_text(encoding="utf-8").startswith("\\begin{tabular}")
    lines = said.out.splitlines()
    assert lines[0] == "1  tiny, associated_learning"
    (accuracies,) = [line for line in lines if line.startswith("1 ") and "finished" in line]
    assert "streamed, 2 stages" in accuracies and "inline" in accuracies
    # Counted by hand in test_trained_commands; beside the route of depth 3 there are g and the other two bridges.
    (costs,) = [line for line in lines if "265" in line.split()]
    assert str(16 + 20 + 20 + 132 + 132) in costs.split()
    (twin,) = [line for line in lines if "193" in line.split()]
    assert "0" in twin.split()
    noted = alray("compare", first, shutil.copytree(ended, Path("again").resolve())).out
    assert "note: " in noted and "two runs have the same seed" in noted


@pytest.mark.full
def test_compare_as_json(alray: Callable[..., Any], ended: Path, tmp_path: Path) -> None:
    said = alray("compare", ended, "--json", "--output", tmp_path / "new" / "x.html").json
    (group,) = said["groups"]
    assert said["page"] == str(tmp_path / "new" / "x.html")
    assert (group["method"], group["status"], group["effective_parameters"]) == ("associated_learning", "finished", 265)
    assert [entry["depth"] for entry in group["per_depth"]] == [1, 2, 3]
    assert group["test"]["deviation"] is None
    assert group["runs"][0]["chosen"]["test"] == group["test"]["mean"]
    assert group["single_step"]["rows"][-1]["measured"]["step_s"] > 0


def test_compare_refuses_what_is_no_run(alray: Callable[..., Any], ended: Path, tmp_path: Path) -> None:
    refused = alray("compare", ended, tmp_path, "--json")
    (problem,) = refused.json["errors"]
    assert refused.code == 2
    assert problem["file"].startswith(str(tmp_path)) and problem["hint"]
    (tmp_path / "no").write_text("a file")
    unwritable = alray("compare", ended, "--output", tmp_path / "no" / "x.html", "--json")
    assert (unwritable.code, unwritable.json["errors"][0]["file"]) == (2, str(tmp_path / "no" / "x.html"))


@pytest.mark.parametrize(
    "text", ["[]", "name: a", "{name: a, seed: x, data: {}, model: {}}", "{name: a, data: {}, model: 1}"]
)
def test_a_spec_that_is_none_is_one_error(alray: Callable[..., Any], ended: Path, tmp_path: Path, text: str) -> None:
    shutil.copytree(ended, tmp_path / "damaged")
    (tmp_path / "damaged" / "spec.yaml").write_text(text)
    said = alray("compare", ended, tmp_path / "damaged", "--json")
    assert [error["file"] for error in said.json["errors"]] == [str(tmp_path / "damaged" / "spec.yaml")]
