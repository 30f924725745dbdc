"""Studies that are killed, that run side by side, and whose trials lie on several nodes. Each of these takes long."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from alray.config.study.load import load_study
from alray.studies.folder import StudyFolder
from alray.studies.records import TrialRecord
from alray.studies.study import StudyOptions, Watcher, resume_study, run_study
from alray.studies.trial import TrialOrder

from .conftest import LONG, Workshop
from .test_studies_on_ray import begin, left_behind, processes_of_trials, study

pytestmark = [pytest.mark.ray, pytest.mark.full]
RAYS_AGENTS = {"ray::DashboardAgent", "ray::RuntimeEnvAgent"}
"""Ray ends them a minute after a node has died: before that they try to tell a GCS that has died with it."""
QUIET = Watcher(lambda line: None, lambda progress: None)
SEARCH = "search: {kind: optuna, trials: 5, space: {optimizer.lr: {loguniform: [1.0e-4, 1.0e-1]}}}\n"


def wait_for_steps(out: Path, driver: subprocess.Popen[bytes]) -> None:
    """Wait until the first trial of a study trains."""
    records = out / "trials/0000/records.jsonl"
    while not records.exists() or '"kind":"steps"' not in records.read_text(encoding="utf-8"):
        assert driver.poll() is None
        time.sleep(0.05)


def what_counts(records: Sequence[TrialRecord]) -> list[Any]:
    """The records without measured times."""
    return [
        (
            record.number,
            record.point,
            record.index,
            record.values,
            record.seed,
            record.overrides,
            record.status,
            record.reached and (record.reached.step, record.reached.samples),
            record.summary and (record.summary.weights_sha256, record.summary.accuracy, record.summary.steps),
        )
        for record in records
    ]


@pytest.mark.timeout(900)
def test_a_study_killed_at_five_random_moments_has_the_records_of_an_undisturbed_one(
    workshop: Workshop, cluster: Any, local_ray: None
) -> None:
    setup = "set: {run.epochs: 6, model.components.2.sleep_s: 0.05}\naxes: {pipeline.stages: [1, 2]}\n"
    path = study(workshop, f"{setup}{SEARCH}max_concurrent: 1\ntarget: {{metric: validation_accuracy, above: 0.9}}\n")
    run_study(path, [], StudyOptions(study_dir=workshop.folder / "undisturbed"), QUIET)
    out, moments, ended = workshop.folder / "killed", random.Random(16), []
    for kill in range(5):
        process = begin(cluster, *([path, "--output", out] if kill == 0 else ["--resume", out]))
        until = (ended[-1] if ended else 0) + moments.choice([0, 1, 2])
        while not (out / "tune").exists() or len(list(out.glob("trials/*/trial.json"))) < until:
            assert process.poll() is None
            time.sleep(0.02)
        time.sleep(moments.uniform(0, 3))
        assert process.poll() is None, "the study ended before it was killed"
        process.kill()
        process.wait()
        ended.append(len(StudyFolder.open(out).records()))
    report = resume_study(out, [], StudyOptions(), QUIET)
    assert report.summary.status == "finished"
    assert 0 < ended[0] < ended[-1] < 10, "it was not killed in the middle"
    undisturbed = StudyFolder.open(workshop.folder / "undisturbed").records()
    assert len(undisturbed) == 10
    assert what_counts(StudyFolder.open(out).records()) == what_counts(undisturbed)
    assert left_behind() == []


@pytest.mark.timeout(600)
def test_two_studies_at_once_on_one_cluster_finish(workshop: Workshop, cluster: Any, local_ray: None) -> None:
    """Each of them could take all four processors."""
    path = study(workshop, "axes: {pipeline.stages: [1, 2, 4]}\nrepeats: 2\n")
    outs = [workshop.folder / name for name in ("first", "second")]
    processes = [begin(cluster, path, "--output", out) for out in outs]
    assert [process.wait(timeout=280) for process in processes] == [0, 0]
    first, second = (StudyFolder.open(out).records() for out in outs)
    assert [record.status for record in first] == ["finished"] * 6
    assert what_counts(first) == what_counts(second)
    assert left_behind() == []


@pytest.fixture
def three_nodes(cluster: Any) -> Iterator[None]:
    """Nine processors: four, three and two."""
    nodes = [cluster.add_node(num_cpus=count) for count in (3, 2)]
    yield
    for node in nodes:
        cluster.remove_node(node)


@pytest.mark.timeout(600)
def test_every_stage_has_a_bundle_of_its_trials_own_group(
    workshop: Workshop, cluster: Any, three_nodes: None, local_ray: None, monkeypatch: Any
) -> None:
    def look(order: TrialOrder, *evaluated: Any) -> TrialRecord:
        """In place of a run: begin a process for each stage, and write down where Ray has put it."""
        import ray

        from alray.runtime.cluster.placement import Placement
        from alray.runtime.runner.engines import stage_bundles
        from alray.studies.trial import record_of

        class Stage:
            def where(self) -> dict[str, Any]:
                context = ray.get_runtime_context()
                resources = ray._private.worker.global_worker.core_worker.resource_ids()
                bundles = sorted(name.split("_group_")[1] for name in resources if name.startswith("CPU_group_"))
                return {"node": context.get_node_id(), "bundles": bundles, "process": os.getpid()}

        spec = load_study(order.folder.path / "study.yaml").spec_of(order.trial)
        bundles = stage_bundles(spec)
        placement = Placement.of_trial(bundles)
        found = {"group": placement.group.id.hex(), "nodes": placement.nodes, "offset": placement.offset}
        if order.one_process:
            found["stages"] = [Stage().where()]
        else:
            actors = [ray.remote(Stage).options(**placement.options(place)).remote() for place in range(len(bundles))]
            found["stages"] = ray.get([actor.where.remote() for actor in actors])
        return record_of(order.trial, "finished", json.dumps(found))

    monkeypatch.setattr("alray.studies.tuning.run_trial", look)
    shapes = [(stages, 1) for stages in range(1, 9)] + [(2, 3)]
    variants = ", ".join(f"v{s}x{r}: {{pipeline.stages: {s}, replicas.count: {r}}}" for s, r in shapes)
    setup = "set: {model.components.0.repeat: 5, pipeline.costs: null}\n"
    path = study(workshop, f"{setup}axes: {{variant: {{{variants}}}}}\n")
    run_study(path, [], StudyOptions(study_dir=workshop.folder / "out"), QUIET)
    groups, spread = set(), 0
    records = StudyFolder.open(workshop.folder / "out").records()
    for record, (stages, replicas) in zip(records, shapes, strict=True):
        assert record.status == "finished", record.reason
        found = json.loads(record.reason or "")
        processes = found["stages"]
        assert len(processes) == len({process["process"] for process in processes}) == stages * replicas
        assert found["offset"] == 0  # Ray has dropped the empty bundle of the trial's process
        assert [process["node"] for process in processes] == found["nodes"]
        for place, process in enumerate(processes):
            assert set(process["bundles"]) == {found["group"], f"{place}_{found['group']}"}
        groups.add(found["group"])
        spread = max(spread, len(set(found["nodes"])))
    assert (
        len(groups) == len(shapes) - 1
    )  # six stages and three times two ask for the same, and use it one after another
    assert spread == 3
    assert left_behind() == []


@pytest.mark.timeout(600)
def test_trials_on_several_nodes_end_in_the_same_bits(
    workshop: Workshop, cluster: Any, three_nodes: None, local_ray: None
) -> None:
    """A stage takes three processors, so two stages, and two replicas, lie on two nodes."""
    variants = "{one: {}, stages: {pipeline.stages: 2}, replicas: {replicas.count: 2}}"
    path = study(workshop, f"set: {{resources.per_stage: {{CPU: 3}}}}\naxes: {{variant: {variants}}}\n")
    run_study(path, [], StudyOptions(study_dir=workshop.folder / "out"), QUIET)
    one, stages, replicas = StudyFolder.open(workshop.folder / "out").records()
    alone = [workshop.run().summary, workshop.run("replicas.count=2", name="replicas").summary]
    for record, expected in ((one, alone[0]), (stages, alone[0]), (replicas, alone[1])):
        assert record.status == "finished" and record.summary is not None
        assert record.summary.weights_sha256 == expected.weights_sha256
    assert left_behind() == []


@pytest.mark.timeout(600)
def test_trials_that_asha_stops_leave_nothing_behind(workshop: Workshop, cluster: Any, local_ray: None) -> None:
    asha = "trial_scheduler: {kind: asha, grace_samples: 64, reduction_factor: 2}\nmax_concurrent: 1\n"
    path = study(workshop, f"set: {{run.epochs: 6}}\naxes: {{pipeline.stages: [1, 2]}}\n{SEARCH}{asha}")
    report = run_study(path, [], StudyOptions(study_dir=workshop.folder / "out"), QUIET)
    records = StudyFolder.open(workshop.folder / "out").records()
    assert set(report.summary.statuses) == {"finished", "stopped"}
    assert {record.point["pipeline.stages"] for record in records if record.status == "stopped"} == {1, 2}
    assert left_behind() == []


@pytest.mark.timeout(600)
def test_a_killed_stage_trial_or_driver_leaves_no_process(workshop: Workshop, cluster: Any, local_ray: None) -> None:
    """Each is killed from outside, in the middle of a trial of two stages."""
    slow = ", ".join(key.replace("=", ": ") for key in LONG)
    path = study(workshop, f"set: {{{slow}, run.max_failures: 0}}\naxes: {{pipeline.stages: [2]}}\n")
    for victim in ("ray::Stage", "ray::ImplicitFu", None):
        out = workshop.folder / str(victim)
        driver = begin(cluster, path, "--output", out)
        wait_for_steps(out, driver)
        if victim is None:
            driver.kill()
        else:
            next(process for process in processes_of_trials() if process.name().startswith(victim)).kill()
        driver.wait(timeout=60)
        folder = StudyFolder.open(out)
        assert folder.records() == []
        assert len(folder.lost()) == (victim is not None)
        assert left_behind() == []


@pytest.mark.timeout(600)
def test_a_killed_study_takes_its_own_ray_with_it(workshop: Workshop, own_ray: None) -> None:
    slow = ", ".join(key.replace("=", ": ") for key in LONG)
    path, out = study(workshop, f"set: {{{slow}}}\naxes: {{pipeline.stages: [2]}}\n"), workshop.folder / "out"
    driver = begin(None, path, "--output", out)
    wait_for_steps(out, driver)
    begun = psutil.Process(driver.pid).children(recursive=True)
    assert sum(process.name().startswith("ray::Stage") for process in begun) == 2
    driver.kill()
    driver.wait()
    _, alive = psutil.wait_procs(begun, timeout=15)
    assert {process.name() for process in alive} <= RAYS_AGENTS


@pytest.mark.timeout(300)
def test_each_session_of_a_study_is_started_again(workshop: Workshop) -> None:
    path = study(
        workshop,
        "set: {pipeline.costs: null}\naxes: {data.batch_size: [4, 8]}\nsessions: 2\nmeasures: times\n",
    )
    assert begin(None, path, "--output", workshop.folder / "out").wait(240) == 0
    folder = StudyFolder.open(workshop.folder / "out")
    found = [(each.session, each.point["data.batch_size"]) for each in folder.records()]
    assert found == [(0, 4), (0, 8), (1, 8), (1, 4)]
    predicted = [each.summary.predicted_step_time_s for each in folder.records() if each.summary is not None]
    assert len(set(predicted)) == 4, "each session measures the costs anew"


@pytest.mark.timeout(300)
def test_a_study_goes_on_after_ray_ended_processes_for_memory(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tune takes that for the end of a trial, or of all."""
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.001")  # more is in use on every machine
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "100")
    assert begin(None, study(workshop, "set: {run.max_failures: 0}\n"), "--output", workshop.folder / "out").wait(240)
    monkeypatch.undo()
    assert {each.status for each in StudyFolder.open(workshop.folder / "out").records()} <= {"lost"}
    assert begin(None, "--resume", workshop.folder / "out").wait(240) == 0
    assert [each.status for each in StudyFolder.open(workshop.folder / "out").records()] == ["finished"]
