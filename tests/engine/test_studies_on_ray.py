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
from threading import Thread
from typing import Any

import psutil
import pytest
import ray
import torch
from torch import nn

import alray
from alray.core.errors import PlanError
from alray.studies.folder import StudyFolder
from alray.studies.records import TrialRecord
from alray.studies.study import StudyOptions, StudyProgress, Watcher, resume_study, run_study

from .conftest import LONG, Workshop

pytestmark = pytest.mark.ray

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
    """Ends its process in the middle of the run, the first so many times that a run comes there."""

    def __init__(self, input, width, times, deaths):
        super().__init__()
        self.conv = nn.Conv2d(input[0], width, 1)
        self.times, self.deaths, self.forwards = times, deaths, 0

    def forward(self, s, mask=None):
        import os
        from pathlib import Path
        self.forwards += 1
        if self.forwards == 9:
            died = Path(self.deaths)
            deaths = died.stat().st_size if died.exists() else 0
            if deaths < self.times:
                died.write_text("x" * (deaths + 1))
                os._exit(9)
        return self.conv(s)
'''


@pytest.fixture
def seen() -> list[StudyProgress]:
    """What a watcher was told."""
    return []


@pytest.fixture
def watcher(seen: list[StudyProgress]) -> Watcher:
    return Watcher(sys.stderr.write, seen.append)


def study(workshop: Workshop, text: str) -> Path:
    """A study of the workshop's spec."""
    path = workshop.folder / "study.yaml"
    path.write_text(STUDY + text, encoding="utf-8")
    return path


def begin(cluster: Any, *arguments: object) -> subprocess.Popen[bytes]:
    """Begin `alray study` in a separate process. cluster: None for its own Ray."""
    command = [sys.executable, "-c", "from alray.cli.main import main; main()", "study", *map(str, arguments)]
    if cluster is not None:
        command += ["--address", cluster.address]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def dies(workshop: Workshop, name: str, times: int) -> str:
    """Settings of a network whose process ends so many times. name: of the file that counts."""
    deaths = workshop.folder / name
    return f'model.components.3: {{block: "python:own_blocks.Dying", width: 7, times: {times}, deaths: "{deaths}"}}'


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
        # Ray keeps its own actor for placement groups as soon as one test has used Ray Train.
        actors = [
            actor
            for actor in ray.util.list_named_actors(all_namespaces=True)
            if actor["namespace"] != "AutoscalingCoordinator"
        ]
        found = [*actors, *groups, *processes_of_trials()]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


@pytest.mark.full  # tests/studies/test_tuning.py has trials that are lost; below, a study is killed
@pytest.mark.timeout(300)
def test_a_trial_whose_process_dies_runs_again_as_often_as_allowed_and_then_at_a_resume(
    workshop: Workshop, local_ray: None, seen: list[StudyProgress]
) -> None:
    with (workshop.folder / "own_blocks.py").open("a") as code:
        code.write(DYING)
    notes: list[str] = []
    variants = f"{{fine: {{}}, dying: {{{dies(workshop, 'deaths', 2)}}}}}"
    path = study(workshop, f"set: {{run.max_failures: 1}}\naxes: {{variant: {variants}}}\nmax_concurrent: 1\n")
    watcher = Watcher(notes.append, seen.append)
    report = run_study(path, [], StudyOptions(study_dir=workshop.folder / "out"), watcher)
    folder = StudyFolder.open(workshop.folder / "out")
    (fine,) = folder.records()
    assert fine.status == "finished" and fine.summary is not None and fine.summary.engine == "inline"
    (lost,) = (record.reason or "" for record in folder.lost())
    assert lost.startswith("the process of the trial ended: ") and "worker process has died" in lost
    assert [line.partition(",")[0] for line in notes if line.endswith("it runs again")] == ["variant=dying"]
    assert (workshop.folder / "deaths").stat().st_size == 2
    assert (report.summary.status, report.summary.statuses, report.summary.lost) == ("unfinished", {"finished": 1}, 1)
    assert [progress.ended for progress in seen] == [1, 2]
    assert left_behind() == []

    again = resume_study(workshop.folder / "out", [], StudyOptions(), watcher).summary
    assert (again.status, again.statuses, again.lost) == ("finished", {"finished": 2}, 0)
    _, record = folder.records()
    alone = workshop.run(*record.overrides, name="alone").summary
    assert record.summary is not None and record.summary.weights_sha256 == alone.weights_sha256


@pytest.mark.full  # the test above has a process that dies, test_cluster.py a node of a run
@pytest.mark.timeout(300)
def test_a_trial_whose_node_dies_runs_again_on_another(
    workshop: Workshop, cluster: Any, local_ray: None, seen: list[StudyProgress]
) -> None:
    """Its process can only be on nodes that come and go."""
    (doomed,) = nodes = [cluster.add_node(num_cpus=1, resources={"far": 1})]
    notes: list[str] = []

    def bring_another(line: str) -> None:
        notes.append(line)
        if line.endswith("it runs again"):
            nodes.append(cluster.add_node(num_cpus=1, resources={"far": 1}))

    def end_the_node() -> None:
        records = workshop.folder / "out/trials/0000/records.jsonl"
        while not records.exists() or '"kind":"steps"' not in records.read_text(encoding="utf-8"):
            time.sleep(0.05)
        cluster.remove_node(doomed, allow_graceful=False)

    slow = ", ".join(key.replace("=", ": ") for key in LONG)
    far = "resources.per_stage: {CPU: 1, far: 1}"
    path = study(workshop, f"set: {{{slow}, {far}, run.max_failures: 2}}\n")
    ending = Thread(target=end_the_node)
    ending.start()
    options = StudyOptions(study_dir=workshop.folder / "out")
    report = run_study(path, [], options, Watcher(bring_another, seen.append))
    ending.join()
    cluster.remove_node(nodes[-1])
    assert (report.summary.status, report.summary.statuses) == ("finished", {"finished": 1})
    assert len(nodes) == 2


@pytest.mark.full  # tests/studies/test_tuning.py has the end of a study, tests/chaos/test_chaos.py a full disk
@pytest.mark.timeout(300)
def test_a_full_disk_ends_a_study_in_one_error_and_it_goes_on_when_there_is_room(
    workshop: Workshop, own_ray: None
) -> None:
    path, disk = (
        study(workshop, "axes: {seed: [1, 2, 3, 4, 5, 6, 7, 8]}\nmax_concurrent: 1\n"),
        workshop.folder / "disk",
    )
    disk.mkdir()
    alray = f"{sys.executable} -m alray study"
    script = (
        f"mount -t tmpfs -o size=600k tmpfs {disk}; "
        f"{alray} {path} --output {disk}/out 2> full.err && exit 3; ls {disk}/out/trials/*/trial.json > ended; "
        f"mount -o remount,size=64m {disk}; {alray} --resume {disk}/out --json > answer.json 2> resumed.err"
    )
    as_root = () if os.geteuid() == 0 else ("--map-root-user",)
    if subprocess.run(["unshare", *as_root, "--mount", "mount", "-t", "tmpfs", "tmpfs", disk]).returncode != 0:
        pytest.skip("this machine does not let this process mount a small disk")
    done = subprocess.run(["unshare", *as_root, "--mount", "bash", "-c", script], cwd=workshop.folder)
    assert done.returncode == 0, (workshop.folder / "resumed.err").read_text()
    error, *others = [
        line for line in (workshop.folder / "full.err").read_text().splitlines() if not line.startswith("[")
    ]
    assert error.startswith("error: ") and error.endswith(": the disk is full")
    assert len(others) == 1 and "--resume" in others[0]
    assert 0 < len((workshop.folder / "ended").read_text().split()) < 8
    assert json.loads((workshop.folder / "answer.json").read_text())["statuses"] == {"finished": 8}


@pytest.mark.full  # tests/runtime/cluster/test_placement.py waits for room
@pytest.mark.timeout(120)
def test_a_full_cluster_is_waited_for(
    workshop: Workshop, local_ray: None, seen: list[StudyProgress], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alray.studies.tuning._UNTOLD_S", 3.0)
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
    assert sum("room" in line for line in notes) == 1


@pytest.mark.full  # tests/cli/test_study_command.py has a trial in a used process
@pytest.mark.timeout(300)
def test_stages_run_trial_after_trial_in_the_same_processes_until_one_dies(workshop: Workshop, local_ray: None) -> None:
    with (workshop.folder / "own_blocks.py").open("a") as code:
        code.write(TELLING + DYING)
    telling, dying = "model.components.3.block: 'python:own_blocks.Telling'", dies(workshop, "deaths", 1)
    naive = "method: {kind: backpropagation}, pipeline.schedule: naive"
    variants = f"{{al: {{{telling}}}, bp: {{{telling}, {naive}}}, dying: {{{dying}}}, last: {{{telling}, seed: 4}}}}"
    both = "set: {run.max_failures: 0, pipeline.stages: 2}\nmax_concurrent: 1\n"
    path = study(workshop, f"{both}axes: {{variant: {variants}}}\n")
    before = dict(os.environ)
    done = alray.study(path, output=workshop.folder / "out", progress=False)
    assert dict(os.environ) == before, "a Ray Tune of the user's own in this process is as before"
    assert len(done.runs) == len(done.table()) == 3
    (lost,) = StudyFolder.open(workshop.folder / "out").lost()
    assert (lost.reason or "").startswith("stage 1 died")
    records = done.trials
    assert [record.number for record in records] == [0, 1, 3]
    for record in records:
        alone = workshop.run(*record.overrides, name=f"alone-{record.number}").summary
        assert record.summary is not None and record.summary.engine == "ray"
        assert record.summary.weights_sha256 == alone.weights_sha256

    def told(number: int) -> str:
        log = workshop.folder / f"out/trials/{number:04d}/logs/stage-1.log"
        return next(line for line in log.read_text().splitlines() if line.startswith("process "))

    assert told(0) == told(1) != told(3)
    assert left_behind() == []


class Doubled(nn.Module):
    def forward(self, s: torch.Tensor) -> torch.Tensor:
        return 2 * s.relu()


class First(alray.Callback):
    """Stops a study after a trial."""

    def __init__(self) -> None:
        self.heard: list[int] = []

    def on_trial(self, record: TrialRecord) -> None:
        self.heard.append(record.number)
        self.stop()


@pytest.mark.full  # tests/api/test_studies.py does so in one process
@pytest.mark.timeout(300)
def test_a_study_of_objects_runs_on_two_stages_and_is_heard_stopped_and_resumed(
    workshop: Workshop, local_ray: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module and its class are in no file that a stage could import."""
    x, y = torch.randn(60, 6), torch.arange(60) % 3
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), Doubled(), nn.Linear(8, 3))
    monkeypatch.setattr(Doubled, "__module__", "__main__")
    cost = {"forward_s": 1e-3, "backward_s": 1e-3, "update_s": 1e-3}
    few = {"data.batch_size": 5, "run.epochs": 2, "pipeline.stages": 2, "pipeline.costs": [cost, cost]}
    axes = {"optimizer.lr": [1e-3, 1e-2]}
    spec = {"study": "rates", "base": str(workshop.spec), "set": few, "axes": axes, "max_concurrent": 1}
    stops, given = First(), {"model": net, "data": (x, y)}
    out = workshop.folder / "out"
    alray.study(spec, output=out, progress=False, callbacks=[stops], **given)
    assert stops.heard == [0]
    study = alray.load_study(out, **given).resume(progress=False, callbacks=[stops])
    assert (stops.heard, study.summary.statuses) == ([0, 1], {"finished": 2})
    for run in study.runs:
        assert (run.summary.engine, run.summary.stages) == ("ray", 2)
        assert alray.reproduce(run, inline=True, progress=False).same
    assert left_behind() == []


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_killed_study_goes_on_to_the_same_records(
    workshop: Workshop, cluster: Any, local_ray: None, watcher: Watcher, seen: list[StudyProgress]
) -> None:
    search = "search: {kind: optuna, trials: 2, space: {optimizer.lr: {loguniform: [1.0e-3, 1.0e-2]}}}"
    path = study(workshop, f"axes: {{pipeline.stages: [2]}}\n{search}\nmax_concurrent: 1\n")
    out = workshop.folder / "out"
    killed = begin(cluster, path, "--output", out)
    while not (out / "trials/0001").exists() and killed.poll() is None:
        time.sleep(0.02)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    (first,) = StudyFolder.open(out).records()
    report = resume_study(out, ["search.trials=3"], StudyOptions(), watcher)
    assert (report.summary.status, report.summary.statuses) == ("finished", {"finished": 3})
    assert [progress.record.number for progress in seen] == [1, 2]
    assert not (out / "tune").exists()
    again, second, added = StudyFolder.open(out).records()
    assert again == first
    assert (added.number, added.index) == (2, 2)
    commands = [json.loads((out / f"trials/000{n}/environment.json").read_text())["command"] for n in range(2)]
    assert commands == [["-c", *killed.args[3:]], sys.argv], "of the study, not of Ray's workers"
    for number, record in enumerate((first, second)):
        alone = workshop.run(*record.overrides, name=f"alone-{number}").summary
        assert record.summary is not None and record.values["optimizer.lr"] != 3e-3
        assert (record.number, record.summary.stages, record.summary.steps) == (number, 2, alone.steps)
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
