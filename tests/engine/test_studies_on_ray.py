"""Studies on a Ray cluster: trials are graphs, their failures are results, and a killed study goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

import alray
from alray.errors import PlanError
from alray.study import tuning
from alray.study.folder import StudyFolder
from alray.study.study import Progress, StudyOptions, Watcher, resume_study, run_study

from .conftest import Workshop

STUDY = """\
study: tiny
base: tiny.yaml
"""
TELLING = '''

class Telling(nn.Module):
    """Prints the process that it is built in, which a stage writes to its log."""

    def __init__(self, input, width):
        super().__init__()
        import os
        print("process", os.getpid())
        self.conv = nn.Conv2d(input[0], width, 1)

    def forward(self, s, mask=None):
        return self.conv(s)
'''
DYING = '''

class Dying(nn.Module):
    """Ends its process in the middle of the run."""

    def __init__(self, input, width):
        super().__init__()
        self.conv = nn.Conv2d(input[0], width, 1)
        self.forwards = 0

    def forward(self, s, mask=None):
        import os, signal
        self.forwards += 1
        if self.forwards == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.conv(s)
'''


@pytest.fixture
def seen() -> list[Progress]:
    """What a watcher was told."""
    return []


@pytest.fixture
def watcher(seen: list[Progress]) -> Watcher:
    return Watcher(sys.stderr.write, seen.append)


def study(workshop: Workshop, text: str) -> Path:
    """A study of the workshop's spec."""
    path = workshop.folder / "study.yaml"
    path.write_text(STUDY + text, encoding="utf-8")
    return path


def begin(cluster: Any, *arguments: object) -> subprocess.Popen[bytes]:
    """Begin `alray study` in a process of its own. cluster: None for a Ray of its own."""
    command = [sys.executable, "-c", "from alray.cli.main import main; main()", "study", *map(str, arguments)]
    if cluster is not None:
        command += ["--address", cluster.address]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def processes_of_trials() -> list[psutil.Process]:
    """The processes of trials and of their stages on the cluster of the tests."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.name().startswith(("ray::Stage", "ray::ImplicitFu")):
                found.append(process)
    return found


def left_behind() -> list[Any]:
    """Processes, actors and placement groups of trials that still exist, a moment after everything has ended."""
    import ray
    from ray.util.placement_group import placement_group_table

    deadline = time.monotonic() + 10
    while True:
        groups = [group["state"] for group in placement_group_table().values() if group["state"] != "REMOVED"]
        # Ray keeps an actor of its own for placement groups as soon as one test has used Ray Train.
        actors = [
            actor
            for actor in ray.util.list_named_actors(all_namespaces=True)
            if actor["namespace"] != "AutoscalingCoordinator"
        ]
        found = [*actors, *groups, *processes_of_trials()]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


@pytest.mark.timeout(300)
def test_a_trial_whose_process_or_stage_dies_is_a_result(
    workshop: Workshop, local_ray: None, watcher: Watcher, seen: list[Progress]
) -> None:
    with (workshop.folder / "own_blocks.py").open("a") as code:
        code.write(DYING)
    dying = 'model.components.3.block: "python:own_blocks.Dying"'
    variants = f"{{fine: {{}}, dying: {{{dying}}}, dying_stage: {{{dying}, pipeline.stages: 2}}}}"
    path = study(workshop, f"set: {{run.max_failures: 0}}\naxes: {{variant: {variants}}}\nmax_concurrent: 1\n")
    report = run_study(path, [], StudyOptions(study_dir=workshop.folder / "out"), watcher)
    fine, dying_process, dying_stage = StudyFolder.open(workshop.folder / "out").records()
    assert fine.status == "finished" and fine.summary is not None and fine.summary.engine == "inline"
    assert dying_process.status == "failed" and dying_process.reason is not None
    assert dying_process.reason.startswith("the process of the trial ended: ")
    assert "worker process has died" in dying_process.reason
    assert dying_stage.status == "failed" and dying_stage.reason is not None
    assert dying_stage.reason.startswith("stage 1 died")
    assert (report.summary.status, report.summary.statuses) == ("finished", {"finished": 1, "failed": 2})
    assert [progress.ended for progress in seen] == [1, 2, 3]
    assert left_behind() == []


@pytest.mark.timeout(120)
def test_a_full_cluster_is_waited_for(
    workshop: Workshop, local_ray: None, seen: list[Progress], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "_UNTOLD_S", 3.0)
    others = ray.util.placement_group([{"CPU": ray.cluster_resources()["CPU"]}])
    assert others.wait(30)
    notes: list[str] = []

    def make_room(line: str) -> None:
        notes.append(line)
        if "waiting until the cluster has room" in line:
            ray.util.remove_placement_group(others)

    path = study(workshop, "axes: {seed: [1, 2]}\nmax_concurrent: 1\n")
    options = StudyOptions(study_dir=workshop.folder / "out")
    report = run_study(path, [], options, Watcher(make_room, seen.append))
    assert report.summary.statuses == {"finished": 2}
    assert [line for line in notes if "room" in line] == [
        "no trial has started for 3 s: waiting until the cluster has room for one"
    ]


@pytest.mark.timeout(300)
def test_stages_run_trial_after_trial_in_the_same_processes_until_one_dies(workshop: Workshop, local_ray: None) -> None:
    with (workshop.folder / "own_blocks.py").open("a") as code:
        code.write(TELLING + DYING)
    telling, dying = (f"model.components.3.block: 'python:own_blocks.{name}'" for name in ("Telling", "Dying"))
    naive = "method: {kind: backpropagation}, pipeline.schedule: naive"
    variants = f"{{al: {{{telling}}}, bp: {{{telling}, {naive}}}, dying: {{{dying}}}, last: {{{telling}, seed: 4}}}}"
    both = "set: {run.max_failures: 0, pipeline.stages: 2}\nmax_concurrent: 1\n"
    path = study(workshop, f"{both}axes: {{variant: {variants}}}\n")
    done = alray.study(path, output=workshop.folder / "out", progress=False)
    assert len(done.runs) == len(done.table()) == 4
    records = done.trials
    assert [record.status for record in records] == ["finished", "finished", "failed", "finished"]
    for record in (records[0], records[1], records[3]):
        alone = workshop.run(*record.overrides, name=f"alone-{record.number}").summary
        assert record.summary is not None and record.summary.engine == "ray"
        assert record.summary.weights_sha256 == alone.weights_sha256

    def told(number: int) -> str:
        log = workshop.folder / f"out/trials/{number:04d}/logs/stage-1.log"
        return next(line for line in log.read_text().splitlines() if line.startswith("process "))

    assert told(0) == told(1) != told(3)
    assert left_behind() == []


@pytest.mark.timeout(300)
def test_a_killed_study_goes_on_to_the_same_records(
    workshop: Workshop, cluster: Any, local_ray: None, watcher: Watcher, seen: list[Progress]
) -> None:
    search = "search: {kind: optuna, trials: 1, space: {optimizer.lr: {loguniform: [1.0e-3, 1.0e-2]}}}"
    path = study(workshop, f"axes: {{pipeline.stages: [1, 2]}}\n{search}\nmax_concurrent: 1\n")
    out = workshop.folder / "out"
    killed = begin(cluster, path, "--output", out)
    while not (out / "trials/0001").exists() and killed.poll() is None:
        time.sleep(0.02)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    (first,) = StudyFolder.open(out).records()
    report = resume_study(out, StudyOptions(), watcher)
    assert report.summary.status == "finished"
    assert [progress.record.number for progress in seen] == [1]
    assert not (out / "tune").exists()
    again, second = StudyFolder.open(out).records()
    assert again == first
    commands = [json.loads((out / f"trials/000{n}/environment.json").read_text())["command"] for n in range(2)]
    assert commands == [["-c", *killed.args[3:]], sys.argv], "of the study, not of Ray's workers"
    for number, record in enumerate((first, second)):
        alone = workshop.run(*record.overrides, name=f"alone-{number}").summary
        assert record.summary is not None and record.values["optimizer.lr"] != 3e-3
        assert (record.number, record.summary.stages, record.summary.steps) == (number, number + 1, alone.steps)
        assert record.summary.weights_sha256 == alone.weights_sha256
    assert left_behind() == []


def test_a_study_that_can_never_fit_is_refused_before_it_starts(
    workshop: Workshop, local_ray: None, watcher: Watcher
) -> None:
    path = study(workshop, "set: {resources.per_stage: {CPU: 3}}\naxes: {pipeline.stages: [1, 2]}\n")
    began_s = time.monotonic()
    with pytest.raises(PlanError, match="can never be placed"):
        run_study(path, [], StudyOptions(study_dir=workshop.folder / "out"), watcher)
    assert time.monotonic() - began_s < 5
    assert not (workshop.folder / "out").exists()
