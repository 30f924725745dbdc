"""A run whose folder is on object storage ends in the bits of one on a disk, also after a kill in a checkpoint."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from alray.cli.main import execute
from alray.core.run_folder.records import effective, read
from alray.core.run_folder.store import manifests
from alray.core.storage.appended import on_a_disk
from alray.core.storage.location import location_of
from alray.runtime.planner.planning import Planner

from ...report.test_tensorboard import scalars

pytestmark = pytest.mark.own_ray

SPEC = """\
name: stored
data: {source: synthetic, shape: [1, 4, 4], classes: 3, samples: 100, batch_size: 10, validation_fraction: 0}
model:
  components:
    - {block: vgg, channels: [2]}
    - {block: "python:own_block.Own"}
    - {block: vgg, channels: [4], pool: true}
method: {kind: associated_learning, label_dim: 4}
pipeline: {stages: 2, costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost, *cost]}
run: {epochs: 2, checkpoint: {every: 5 steps, keep: 2}}
"""
STEPS = list(range(1, 21))
OWN = """\
from torch import nn


class Own(nn.Conv2d):
    def __init__(self, input):
        super().__init__(input[0], 2, 1)
        print("own block")

    def forward(self, s, mask=None):
        return super().forward(s)
"""
KILLED = """\
import os, signal, sys, time
from alray.cli.main import execute
from alray.core.storage.objects import ObjectPath

written = ObjectPath.write_bytes

def write_bytes(self, content):
    written(self, content)
    if self.url.endswith(sys.argv[1]):
        while not (self.parent.parent / "step-00000005" / "manifest.json").is_file():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)

ObjectPath.write_bytes = write_bytes
execute(["run", "stored.yaml", "--inline", "--output", sys.argv[2]])
"""
"""Ends once the file that is named has been written, and the checkpoint after 5 mini-batches is complete."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the spec in it."""
    monkeypatch.chdir(tmp_path)
    Path("stored.yaml").write_text(SPEC)
    Path("own_block.py").write_text(OWN)
    return tmp_path


@pytest.fixture
def alray(folder: Path, capsys: pytest.CaptureFixture[str]):
    """Runs a command and gives its answer."""

    def command(*arguments: str):
        capsys.readouterr()
        code = execute([*arguments, "--json"])
        answer = capsys.readouterr()
        assert code == 0, answer
        return json.loads(answer.out)

    return command


@pytest.mark.full
def test_a_run_as_on_a_disk(alray, bucket: str) -> None:
    url = f"{bucket}/runs/one"
    disk = alray("run", "stored.yaml", "--inline", "--output", "disk")
    stored = alray("run", "stored.yaml", "--inline", "--output", url)
    assert stored["weights_sha256"] == disk["weights_sha256"]
    assert (stored["run_dir"], stored["report"]) == (url, f"{url}/report.html")
    here, there = Path("disk"), location_of(url)
    files = {path.relative_to(here).as_posix() for path in here.rglob("*") if path.is_file()}
    events = {name for name in files if name.startswith("tensorboard/")}
    parts = {"records.jsonl", "logs/stage-0.log"}
    names = set(there.below())
    assert files - events - parts <= names
    assert {"records/000001.jsonl", "logs/stage-0/000001.log"} <= names
    assert len([name for name in names if name.startswith("tensorboard/events.")]) == len(events) == 1
    assert [record.step for record in read(there / "records.jsonl") if record.kind == "step"] == STEPS
    with on_a_disk(there) as copy:
        copied = {path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file()}
        assert copied - {name for name in copied if name.startswith("tensorboard/")} == files - events
        assert list(read(copy / "records.jsonl")) == list(read(there / "records.jsonl"))
        assert alray("report", str(copy))["report"] == str(copy / "report.html")
    (there / "report.html").unlink(missing_ok=True)
    assert alray("report", url)["report"] == f"{url}/report.html"
    assert "stored" in (there / "report.html").read_text(encoding="utf-8")
    depths = [{"depth": each["depth"], "test": each["test"]} for each in stored["accuracy_per_depth"]]
    evaluated = alray("evaluate", url)
    assert evaluated["weights"] == {"step": STEPS[-1], "which": "last"}
    assert [{"depth": each["depth"], "test": each["test"]} for each in evaluated["accuracy_per_depth"]] == depths
    more = "run.epochs=3"
    longer = alray("resume", "disk", "--inline", more)["weights_sha256"]
    assert alray("resume", url, "--inline", more)["weights_sha256"] == longer


@pytest.mark.full  # test_crash_objects.py fails some requests
@pytest.mark.parametrize(
    ("last", "complete"),
    [
        pytest.param("step-00000010/component-01.safetensors", [5], id="between the files of a checkpoint"),
        pytest.param("step-00000010/manifest.json", [5, 10], id="after its manifest"),
    ],
)
def test_a_kill_leaves_the_checkpoint_before(alray, bucket: str, last: str, complete: list[int]) -> None:
    url = f"{bucket}/run"
    killed = subprocess.run([sys.executable, "-c", KILLED, last, url], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    folder = location_of(url)
    assert any(name.endswith(last) for name in folder.below())
    assert [manifest["step"] for manifest in manifests(folder)] == complete
    steps = [record.step for record in read(folder / "records.jsonl") if record.kind == "step"]
    assert steps[: complete[-1]] == STEPS[: complete[-1]], "no record is missing from before a checkpoint"
    resumed = alray("resume", url, "--inline")
    assert resumed["weights_sha256"] == alray("run", "stored.yaml", "--inline", "--output", "whole")["weights_sha256"]
    steps = [record.step for record in effective(read(folder / "records.jsonl")) if record.kind == "step"]
    assert steps == STEPS
    with on_a_disk(folder) as copy:
        assert [step for step, *_ in scalars(copy / "tensorboard")["lr"]] == STEPS


@pytest.mark.full
def test_a_resume_goes_on_from_what_another_process_has_written_meanwhile(
    alray, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On object storage a run that is resumed while it goes on writes checkpoints until it sees that, and deletes
    older ones: also the one that the resume found first."""
    alray("run", "stored.yaml", "--inline", "--output", "run", "run.epochs=null", "run.steps=5")
    whole = alray("run", "stored.yaml", "--inline", "--output", "whole", "run.epochs=null", "run.steps=20")
    opened = Planner.open

    def meanwhile(*given: Any, **named: Any) -> Planner:
        shutil.rmtree("run/checkpoints/step-00000005")
        shutil.copytree("whole/checkpoints/step-00000015", "run/checkpoints/step-00000015")
        return opened(*given, **named)

    monkeypatch.setattr(Planner, "open", meanwhile)
    resumed = alray("resume", "run", "--inline", "run.steps=20")
    assert resumed["weights_sha256"] == whole["weights_sha256"]
    assert [record.step for record in read(folder / "run/records.jsonl") if record.kind == "event"] == [0, 5, 15, 20]


@pytest.fixture
def own_ray() -> None:
    """Marks a test whose run starts a Ray and ends it."""


@pytest.mark.full  # the same writer as inline
def test_stages_on_ray_write_there_themselves(alray, bucket: str, own_ray: None) -> None:
    url = f"{bucket}/run"
    command = [sys.executable, "-c", "from alray.cli.main import main; main()"]
    run = subprocess.run([*command, "run", "stored.yaml", "--output", url, "--json"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    inline = alray("run", "stored.yaml", "--inline", "--output", "disk")
    assert json.loads(run.stdout)["weights_sha256"] == inline["weights_sha256"]
    folder = location_of(url)
    logs = [folder / name for name in folder.below() if name.startswith("logs/")]
    assert sum(b"own block" in log.read_bytes() for log in logs) == 1
