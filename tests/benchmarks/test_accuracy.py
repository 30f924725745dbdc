"""The benchmark of accuracy: a run as it runs them, continued without doing it again."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from alray.cli.main import execute
from benchmarks import accuracy
from benchmarks.accuracy import SPECS, Trial, figures, trials
from benchmarks.accuracy_page import METHODS, NETWORKS

COST = "{forward_s: 0.001, backward_s: 0.001, update_s: 0.001}"
SHORT = ("run.epochs=1", "data.train_fraction=0.1", f"pipeline.costs=[{COST}, {COST}, {COST}, {COST}]")


@pytest.mark.full  # long, and only the benchmarks use it
def test_a_finished_run_of_the_same_spec_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    trial, twin, *_ = trials(tmp_path, ["vgg_digits"], 1, SHORT)
    assert (trial.method, twin.method) == ("associated_learning", "backpropagation")
    assert trial.run()
    words = ["run", str(twin.spec), *twin.arguments, "--inline", "--output", str(twin.run_dir)]
    assert execute(words) == 0 and twin.is_done  # as `twin.run()` does in a separate process
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: pytest.fail("run again"))
    assert trial.run()
    assert not Trial("vgg_digits", "associated_learning", 0, tmp_path, ("run.epochs=2",)).is_done
    assert not Trial("vgg_digits", "associated_learning", 1, tmp_path, SHORT).is_done

    assert figures(tmp_path) == {}, "they are short runs, and no runs of the committed spec"
    found = figures(tmp_path, overrides=SHORT)
    assert list(found) == ["vgg_digits"] and list(found["vgg_digits"]) == ["associated_learning", "backpropagation"]
    run = found["vgg_digits"]["associated_learning"]["0"]
    assert list(run["test_per_depth"]) == ["1", "2", "3", "4"]
    assert run["test"] == run["test_per_depth"]["4"] and 0 <= run["test"] <= 1
    assert list(found["vgg_digits"]["backpropagation"]["0"]["test_per_depth"]) == ["4"]


def test_a_published_figure_of_another_spec_is_not_published_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = {str(seed): Trial("vgg_digits", "backpropagation", seed, tmp_path) for seed in range(2)}
    known: dict[str, Any] = {
        "vgg_digits": {"backpropagation": {seed: {"spec_sha256": run.spec_sha256} for seed, run in runs.items()}},
        "removed": {"backpropagation": {"0": {}}},
    }
    assert figures(tmp_path, known) == {"vgg_digits": known["vgg_digits"]}
    (tmp_path / "vgg_digits.yaml").write_text(
        (SPECS / "vgg_digits.yaml").read_text(encoding="utf-8").replace("epochs: 20", "epochs: 21"), encoding="utf-8"
    )
    monkeypatch.setattr(accuracy, "SPECS", tmp_path)
    known["vgg_digits"]["backpropagation"]["2"] = before_specs_were_kept = {"test": 0.5}
    assert figures(tmp_path, known) == {"vgg_digits": {"backpropagation": {"2": before_specs_were_kept}}}


def test_every_network_has_its_spec_and_every_run_a_name() -> None:
    assert all((SPECS / f"{network}.yaml").is_file() for network in NETWORKS)
    names = [trial.name for trial in trials(Path("runs"), NETWORKS, 3)]
    assert len(set(names)) == len(NETWORKS) * len(METHODS) * 3
