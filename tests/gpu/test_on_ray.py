"""Stages on GPUs through Ray: two on one GPU, and each on a separate one.

Ray is told of four simulated devices where there is no GPU, and hides those that it has reserved for others. Where
there is one GPU it is told of four too, and the one stands for them (tests/gpu/one_gpu.py).
"""

# ruff: noqa: F811 - fixtures of another file are used here too

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from alray.core.run_folder.records import read_environment
from alray.core.run_folder.store import latest_manifest
from alray.runtime.device import devices
from alray.studies.folder import StudyFolder
from alray.studies.study import StudyOptions, Watcher, run_study

from ..engine.conftest import LONG, Workshop
from ..engine.test_on_ray import struck, victims  # noqa: F401 - a fixture
from ..engine.test_same_bits import same
from ..engine.test_studies_on_ray import study
from .conftest import (
    GPU,
    HALF_A_GPU,
    ON_GPU,
    ONE_GPU,
    SIMULATED,
    needs_a_real_gpu,
    needs_stages_on_gpus,
    needs_two_gpus,
)
from .test_one_process import CPU, PIPELINE, WIDE

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("rays_gpus")]
TWO_REPLICAS = ("replicas.count=2", "pipeline.stages=1")
TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def rays_gpus() -> Iterator[None]:
    """Of a machine with GPUs, a run's own Ray counts them. Otherwise one Ray for all tests has what stands for them."""
    with ray_of_gpus():
        yield


@contextmanager
def ray_of_gpus(**environment: str) -> Iterator[None]:
    """
    Args:
        environment: further variables of Ray's processes.
    """
    if not (SIMULATED or ONE_GPU):
        yield
        return
    import ray

    with pytest.MonkeyPatch.context() as patch:
        paths = [str(TESTS / "gpu" / "site"), str(TESTS.parent), os.environ.get("PYTHONPATH")]
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        for name, value in environment.items():
            patch.setenv(name, value)
        # Its own, whatever other Ray this machine has.
        ray.init("local", num_cpus=8, num_gpus=4, include_dashboard=False, log_to_driver=False, namespace="alray")
    yield
    ray.shutdown()


def test_one_stage(workshop: Workshop, gpu_reference) -> None:
    run = workshop.run(*ON_GPU, "pipeline.stages=1", inline=False)
    same(run, gpu_reference)
    if SIMULATED:  # a real GPU has other bits
        same(run, workshop.run(*CPU, "pipeline.stages=1", name="cpu"))


def test_a_driver_without_a_gpu_records_that_of_its_stages(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on the head of a cluster. The processor of the driver was recorded, and compared at a resume."""
    with monkeypatch.context() as on_a_head:
        on_a_head.setattr(devices, "at_hand", lambda device: torch.device("cpu"))
        workshop.run(*ON_GPU, "pipeline.stages=1", inline=False)
    gpu = devices.device_name(devices.pick("auto"))
    recorded = read_environment(workshop.folder / "run"), latest_manifest(workshop.folder / "run")["environment"]
    assert [each["device"] for each in recorded] == [gpu, gpu]


@pytest.mark.few
@pytest.mark.parametrize("schedule", ["streamed", "overlapped"])
def test_two_stages_on_one_gpu(workshop: Workshop, gpu_reference, schedule: str) -> None:
    run = workshop.run(*HALF_A_GPU, "pipeline.partition=[2,2]", f"pipeline.schedule={schedule}", inline=False)
    same(run, gpu_reference)


@needs_stages_on_gpus(2)
def test_two_stages_on_two_gpus(workshop: Workshop, gpu_reference) -> None:
    same(workshop.run(*ON_GPU, "pipeline.partition=[2,2]", inline=False), gpu_reference)


def test_a_trial_of_a_study_in_one_process(workshop: Workshop, gpu_reference) -> None:
    """On the GPU that Ray reserved for it, while another trial has another one."""
    asked = f"resources: {{device: {GPU.type}, per_stage: {{CPU: 1, GPU: 1}}}}, pipeline.stages: 1"
    path = study(workshop, f"set: {{{asked}}}\naxes: {{variant: {{one: {{}}, other: {{seed: 4}}}}}}\n")
    run_study(path, [], StudyOptions(study_dir=workshop.folder / "out"), Watcher(print, lambda progress: None))
    records = StudyFolder.open(workshop.folder / "out").records()
    assert [(each.status, each.reason) for each in records] == [("finished", None)] * 2
    summaries = [each.summary for each in records if each.summary is not None]
    assert [each.engine for each in summaries] == ["inline"] * 2
    assert gpu_reference.summary.weights_sha256 in [each.weights_sha256 for each in summaries]


@pytest.mark.parametrize("measured", [False, True], ids=["", "measured"])
def test_a_stage_on_a_gpu_beside_one_on_a_processor(workshop: Workshop, gpu_reference, measured: bool) -> None:
    """Where costs are not given, each stage's device is measured where the stage will be."""
    mixed = "resources.per_stage=[{CPU: 1, GPU: 1}, {CPU: 1}]"
    costs = ("pipeline.costs=null",) if measured else ()
    run = workshop.run(mixed, *costs, "pipeline.partition=[2,2]", inline=False)
    assert run.error is None and run.summary.status == "finished"
    if SIMULATED:  # a real GPU has other bits
        same(run, gpu_reference)


@needs_a_real_gpu
@needs_stages_on_gpus(2)
@pytest.mark.timeout(400)
def test_a_stage_dies_and_one_is_silent(workshop: Workshop, victims: dict[int, int], monkeypatch) -> None:
    """torch's watchdog of NCCL ends neither of the others: the run names the stage that died, or that is silent."""
    monkeypatch.setattr("alray.planning.prediction.make.LEAST_DEADLINE_S", 8.0)
    strikes = [(1, 17, signal.SIGKILL), (1, 40, signal.SIGSTOP)]
    run = struck(workshop, victims, "[2,2]", strikes, *ON_GPU)
    same(run, workshop.run(*ON_GPU, *LONG, "pipeline.partition=[2,2]", name="inline"))


ONE_OR_TWO = [
    pytest.param(HALF_A_GPU, id="one"),
    pytest.param(ON_GPU, id="two", marks=needs_stages_on_gpus(2)),
]
OF_SEVERAL = [
    pytest.param("[2,1,1]", marks=needs_stages_on_gpus(3)),
    pytest.param("[1,1,1,1]", marks=needs_stages_on_gpus(4)),
]
"""Cuts with stages in the middle, which send to one neighbour while they receive from the other."""


@pytest.mark.parametrize("schedule", ["streamed", "overlapped"])
@pytest.mark.parametrize("partition", OF_SEVERAL)
def test_a_stage_in_the_middle(workshop: Workshop, gpu_reference, partition: str, schedule: str) -> None:
    run = workshop.run(*ON_GPU, f"pipeline.partition={partition}", f"pipeline.schedule={schedule}", inline=False)
    same(run, gpu_reference)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zero_bubble"])
@pytest.mark.parametrize("partition", OF_SEVERAL)
def test_a_pipeline_with_a_stage_in_the_middle(workshop: Workshop, partition: str, schedule: str) -> None:
    overrides = (*ON_GPU, *PIPELINE, f"pipeline.partition={partition}", f"pipeline.schedule={schedule}")
    run = workshop.run(*overrides, inline=False)
    assert run.error is None
    assert run.summary.weights_sha256 == workshop.run(*overrides, name="inline").summary.weights_sha256


@needs_a_real_gpu
@pytest.mark.parametrize("where", [HALF_A_GPU, pytest.param(ON_GPU, marks=needs_two_gpus)], ids=["one", "two"])
def test_stages_stream(workshop: Workshop, where: tuple[str, ...]) -> None:
    """Both stages compute at the same time for most of a step."""
    workshop.spec.write_text(WIDE)
    summary = workshop.run(*where, "pipeline.partition=[1,2]", "run.epochs=20", inline=False).summary
    assert summary.status == "finished" and summary.bubble is not None and summary.bubble < 0.5


@pytest.mark.few
@pytest.mark.parametrize("where", ONE_OR_TWO)
def test_a_pipeline_of_backpropagation(workshop: Workshop, where: tuple[str, ...]) -> None:
    overrides = (*where, *PIPELINE, "pipeline.partition=[2,2]", "pipeline.schedule=1f1b")
    run = workshop.run(*overrides, inline=False)
    assert run.error is None
    assert run.summary.weights_sha256 == workshop.run(*overrides, name="inline").summary.weights_sha256
    again = workshop.run(*overrides, "pipeline.activation_checkpointing=true", inline=False, name="recomputed")
    assert again.summary.weights_sha256 == run.summary.weights_sha256


@pytest.mark.few
@pytest.mark.parametrize("where", ONE_OR_TWO)
@pytest.mark.parametrize("all_reduce", ["backend", "ring"])
def test_two_replicas(workshop: Workshop, where: tuple[str, ...], all_reduce: str) -> None:
    """They end in one set of weights, or the run would say so."""
    replicas = (*TWO_REPLICAS, f"replicas.all_reduce={all_reduce}")
    run = workshop.run(*where, *replicas, inline=False)
    assert run.error is None and run.summary.status == "finished" and run.summary.all_reduce_bytes > 0
    if SIMULATED:  # a real GPU has other bits
        same(run, workshop.run(*CPU, *replicas, name="cpu"))


@needs_a_real_gpu
@needs_two_gpus
def test_two_replicas_of_ray_train(workshop: Workshop) -> None:
    run = workshop.run(
        *ON_GPU, *TWO_REPLICAS, "method={kind: backpropagation}", "replicas.engine=ray_train", inline=False
    )
    assert run.error is None and run.summary.status == "finished"
