"""The benchmark of accuracy: a run as it runs them, continued without doing it again, and the page of its figures."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from alray.cli.main import execute
from benchmarks.accuracy import SPECS, Trial, figures, trials
from benchmarks.accuracy_page import METHODS, NETWORKS, differences, page

OTHERS = "– | " * (len(METHODS) - 2)
"""Cells of the methods beside Associated Learning and backpropagation, without a run."""
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

    found = figures(tmp_path)
    assert list(found) == ["vgg_digits"] and list(found["vgg_digits"]) == ["associated_learning", "backpropagation"]
    run = found["vgg_digits"]["associated_learning"]["0"]
    assert list(run["test_per_depth"]) == ["1", "2", "3", "4"]
    assert run["test"] == run["test_per_depth"]["4"] and 0 <= run["test"] <= 1
    assert list(found["vgg_digits"]["backpropagation"]["0"]["test_per_depth"]) == ["4"]
    assert "| VGG, digits | 0 | " in page(found)


def test_every_network_has_its_spec_and_every_run_a_name() -> None:
    assert all((SPECS / f"{network}.yaml").is_file() for network in NETWORKS)
    names = [trial.name for trial in trials(Path("runs"), NETWORKS, 3)]
    assert len(set(names)) == len(NETWORKS) * len(METHODS) * 3


def made_up(test: float, *, first: float = 0.5) -> dict[str, Any]:
    return {"step": 1, "validation": test, "test": test, "test_per_depth": {"1": first, "2": test}}


def test_the_page_tells_means_differences_and_what_is_missing() -> None:
    local = {"0": made_up(0.80), "1": made_up(0.90), "2": made_up(0.70)}
    twin = {"0": made_up(0.85), "1": made_up(0.91)}
    assert differences(local, twin) == pytest.approx([-5.0, -1.0])
    text = page({"lstm_docstrings": {"associated_learning": local, "backpropagation": twin}})
    assert f"| LSTM, docstrings | 0 1 2 | 80.00 ± 10.00 | 88.00 ± 4.24 | {OTHERS}-3.00 ± 2.83 | **no** |" in text
    assert "| LSTM, docstrings | AL | 50.00 ± 0.00 | 80.00 ± 10.00 |" in text
    assert "- LSTM, docstrings: **bag of embeddings** 50.00 ± 0.00; the whole network by AL is +30.00 ± 10.00" in text
    assert "LSTM, docstrings by BP (2), LSTM, docstrings by SCPL (0 1 2)" in text
    assert "ResNet, digits |" not in text


def test_within_two_points() -> None:
    of = {"associated_learning": {"0": made_up(0.9)}, "backpropagation": {"0": made_up(0.915)}}
    assert f"| VGG, digits | 0 | 90.00 | 91.50 | {OTHERS}-1.50 | yes |" in page({"vgg_digits": of})
