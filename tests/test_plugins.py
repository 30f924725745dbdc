"""The packages in plugins/: installed from their folders, listed, and used by their specs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
WANDB = ROOT / "plugins/wandb"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, installed by pip as a user does, and its run."""
    folder = tmp_path_factory.mktemp("plugin")
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--no-build-isolation", "--target"]
    subprocess.run([*pip, folder / "site", WANDB], check=True, timeout=120)
    return folder


def alray(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command where the package is installed."""
    of_wandb = {"WANDB_MODE": "offline", "WANDB_DIR": str(folder), "WANDB_PROJECT": "mine"}
    paths = os.pathsep.join([str(folder / "site"), str(ROOT)])
    environment = {**os.environ, **of_wandb, "WANDB_ERROR_REPORTING": "false", "PYTHONPATH": paths}
    program = "import sys; from alray.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", program, *map(str, words)]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=150, check=False
    )


def test_it_is_listed(installed: Path) -> None:
    listed = json.loads(alray(installed, "methods", "--json").stdout)["of_packages"]
    assert [(each["group"], each["name"], each["package"]) for each in listed] == [
        ("alray.trackers", "wandb", "alray-wandb")
    ]


@pytest.mark.full
def test_its_spec_trains_and_a_resume_continues_its_run(installed: Path) -> None:
    for words in (("run", WANDB / "spec.yaml", "--output", "out"), ("resume", "out", "run.epochs=4")):
        done = alray(installed, *words, "--inline")
        assert done.returncode == 0, done.stdout + done.stderr
    files = sorted((installed / "wandb").glob("offline-run-*/*.wandb"))
    found = [rows(file) for file in files]
    kept = json.loads((installed / "out/trackers.json").read_text())
    assert [run.run_id for run, _ in found] == [kept["wandb"]] * 2
    config = {item.key: json.loads(item.value_json) for item in found[0][0].config.update}
    assert (config["optimizer.lr"], config["run.epochs"]) == (0.01, 3)
    history = [row for _, own in found for row in own]
    steps = json.loads((installed / "out/summary.json").read_text())["steps"]
    of_losses = [row["mini_batches"] for row in history if "loss_associated/component_01" in row]
    assert of_losses == list(range(1, steps + 1))


def rows(file: Path) -> tuple[Any, list[dict[str, Any]]]:
    """The record of the run and the history in a file of W&B."""
    from wandb.proto.wandb_internal_pb2 import Record as Kept
    from wandb.sdk.internal.datastore import DataStore

    store = DataStore()
    store.open_for_scan(str(file))
    run, history = None, []
    while (data := store.scan_data()) is not None:
        kept = Kept.FromString(data)
        if kept.HasField("run"):
            run = kept.run
        if kept.HasField("history"):
            items = kept.history.item
            history.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items})
    return run, history
