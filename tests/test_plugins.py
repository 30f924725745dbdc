"""The packages in plugins/: installed from their folders, and used by their specs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from alray.core.run_folder.records import StepRecord, effective, read

ROOT = Path(__file__).parents[1]
PLUGINS = ROOT / "plugins"
LOSS = "loss_associated/component_01"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages, installed by pip as a user does."""
    folder = tmp_path_factory.mktemp("plugins")
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--no-build-isolation", "--target"]
    subprocess.run([*pip, folder / "site", PLUGINS / "mlflow", PLUGINS / "wandb"], check=True, timeout=120)
    return folder


def alray(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command where the packages are installed."""
    return python(folder, "import sys; from alray.cli.main import main; sys.exit(main())", *words)


def python(folder: Path, program: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program there."""
    of_trackers = {
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "MLFLOW_EXPERIMENT_NAME": "mine",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(folder),
        "WANDB_PROJECT": "mine",
        "WANDB_ERROR_REPORTING": "false",
    }
    paths = os.pathsep.join([str(folder / "site"), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        cwd=folder,
        env={**os.environ, **of_trackers, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def run_and_resumed(folder: Path, plugin: str) -> tuple[str, dict[int, float]]:
    """Run the spec of a plugin, and resume the run for another epoch.

    Returns the id of the tracker's run, and a loss by the number of its mini-batch, as in the records.
    """
    out = f"of-{plugin}"
    for words in (("run", PLUGINS / plugin / "spec.yaml", "--output", out), ("resume", out, "run.epochs=4")):
        done = alray(folder, *words, "--inline")
        assert done.returncode == 0, done.stdout + done.stderr
    records = effective(read(folder / out / "records.jsonl"))
    losses = {each.step: each.losses[1]["associated"] for each in records if isinstance(each, StepRecord)}
    return json.loads((folder / out / "trackers.json").read_text())[plugin], losses


@pytest.mark.full
def test_a_run_and_its_resume_are_one_run_of_mlflow(installed: Path) -> None:
    from mlflow import MlflowClient

    number, losses = run_and_resumed(installed, "mlflow")
    client = MlflowClient(f"sqlite:///{installed}/mlflow.db")
    experiment = client.get_experiment_by_name("mine")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_id, run.info.run_name, run.info.status) == (number, "of-mlflow", "FINISHED")
    assert run.data.tags["alray.run_dir"] == str(installed / "of-mlflow")
    assert (run.data.params["optimizer.lr"], run.data.params["run.epochs"]) == ("0.01", "3")
    assert run.data.params["model.components.1.block"] == "mlp"
    history = client.get_metric_history(number, LOSS)
    assert {metric.step: metric.value for metric in history} == pytest.approx(losses)


@pytest.mark.full  # to import MLflow takes seconds
def test_a_trial_has_the_tag_of_its_study(installed: Path) -> None:
    from mlflow import MlflowClient

    program = (
        "from alray import TrackedRun; from alray_mlflow import MlflowTracker\n"
        "tracker = MlflowTracker(); run = TrackedRun('mine-3', '/mine-3', {}, study='mine', id=None)\n"
        "print(tracker.start(run)); tracker.end('finished')\n"
    )
    done = python(installed, program)
    assert done.returncode == 0, done.stderr
    tags = MlflowClient(f"sqlite:///{installed}/mlflow.db").get_run(done.stdout.strip()).data.tags
    assert (tags["alray.study"], tags["alray.run_dir"]) == ("mine", "/mine-3")


@pytest.mark.full
def test_a_run_and_its_resume_are_one_run_of_wandb(installed: Path) -> None:
    number, losses = run_and_resumed(installed, "wandb")
    files = sorted((installed / "wandb").glob("offline-run-*/*.wandb"))
    found = [rows(file) for file in files]
    assert [run.run_id for run, _ in found] == [number] * 2
    config = {item.key: json.loads(item.value_json) for item in found[0][0].config.update}
    assert (config["optimizer.lr"], config["run.epochs"]) == (0.01, 3)
    history = [row for _, own in found for row in own]
    assert {row["mini_batches"]: row[LOSS] for row in history if LOSS in row} == pytest.approx(losses)


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
