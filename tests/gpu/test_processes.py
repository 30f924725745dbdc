"""Stages in processes of their own, on one GPU, on two and on four.

On one, messages go through pinned memory; on several, through NCCL; and to a processor of another node through gloo.
The GPUs are simulated ones, with a stand-in for NCCL, or real ones, with NCCL itself. Where there are fewer real ones
than stages, they stand for more (tests/gpu/one_gpu.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from alray.core import accelerator
from alray.core.errors import PlanError
from alray.orchestrate import Finished
from alray.planning.prediction.stage_devices import StageDevices

from ..engine.conftest import Workshop
from ..engine.process_graph import ProcessEngine, Stage, end, in_processes, stage_server
from ..engine.test_language_models import METHODS, workshop_in
from ..engine.test_same_bits import same
from .conftest import HALF_A_GPU, ON_GPU, SIMULATED
from .one_gpu import place
from .test_one_process import CPU, PIPELINE

GPU_AND_CPU = ("resources.per_stage=[{CPU: 1, GPU: 1}, {CPU: 1}]",)
EDGES: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str | None, ...]]] = {
    "shared memory": (HALF_A_GPU, (), ("0", "0")),
    "one pinned": (GPU_AND_CPU, (), ("0", None)),
    "gloo": (GPU_AND_CPU, ("one", "other"), ("0", None)),
    "nccl": (ON_GPU, (), ("0", "1")),
}
"""What each stage asks for, its node and its device."""


def test_few_gpus_stand_for_four() -> None:
    """To NCCL no two stages are on one GPU of a host, and as many as there are GPUs are on one host."""
    for count, hosts in ((1, [0, 1, 2, 3]), (2, [0, 0, 1, 1]), (3, [0, 0, 0, 1]), (4, [0, 0, 0, 0])):
        places = [place(number, count) for number in range(4)]
        assert len(set(places)) == 4 and all(gpu < count for _, gpu in places)
        assert [host for host, _ in places] == [f"round {turn} of GPUs" for turn in hosts]


def bits_are_those_of_one_gpu(edges: str) -> bool:
    """A simulated device has those of a processor. A real one has others."""
    return SIMULATED or EDGES[edges][0] != GPU_AND_CPU


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with stage_server(tmp_path_factory.mktemp("server")) as socket:
        yield socket


@pytest.mark.parametrize("edges", EDGES)
@pytest.mark.parametrize("schedule", ["streamed", "overlapped"])
def test_two_stages(workshop: Workshop, gpu_reference, server: str, schedule: str, edges: str) -> None:
    asked, nodes, gpus = EDGES[edges]
    with in_processes(server, nodes, gpus):
        run = workshop.run(*asked, "pipeline.partition=[2,2]", f"pipeline.schedule={schedule}", inline=False)
    assert run.error is None and run.summary.status == "finished"
    if bits_are_those_of_one_gpu(edges):
        same(run, gpu_reference)


@pytest.mark.parametrize("edges", EDGES)
def test_a_pipeline_of_backpropagation(workshop: Workshop, server: str, edges: str) -> None:
    asked, nodes, gpus = EDGES[edges]
    pipeline = (*PIPELINE, "pipeline.partition=[2,2]", "pipeline.schedule=1f1b")
    overrides = (*asked, *pipeline)
    with in_processes(server, nodes, gpus):
        run = workshop.run(*overrides, inline=False)
        again = workshop.run(*overrides, "pipeline.activation_checkpointing=true", inline=False, name="recomputed")
        alone = workshop.run(*ON_GPU, *pipeline, name="inline")
    assert run.error is None
    assert run.summary.weights_sha256 == again.summary.weights_sha256
    if bits_are_those_of_one_gpu(edges):
        assert run.summary.weights_sha256 == alone.summary.weights_sha256


@pytest.mark.skipif(not SIMULATED, reason="an accelerator that NCCL does not know")
@pytest.mark.parametrize(
    "overrides",
    [
        ("pipeline.partition=[2,2]",),
        (*PIPELINE, "pipeline.partition=[2,2]", "pipeline.schedule=1f1b"),
        ("replicas={count: 2, sync_batch_norm: true}", "pipeline.stages=1"),
    ],
    ids=["streamed", "1f1b", "replicas"],
)
def test_two_accelerators_without_nccl(
    workshop: Workshop, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overrides: tuple[str, ...]
) -> None:
    """Their messages and sums go through the memory of their node, to the same bits."""
    with in_processes(server, (), ("0", "1")):
        over_nccl = workshop.run(*ON_GPU, *overrides, inline=False)
    monkeypatch.setenv("ALRAY_TEST_NCCL", "none")
    with stage_server(tmp_path) as own_server, in_processes(own_server, (), ("0", "1")):
        run = workshop.run(*ON_GPU, *overrides, inline=False, name="without")
    assert run.error is None and run.summary.weights_sha256 == over_nccl.summary.weights_sha256


@pytest.mark.parametrize("norms", [False, True], ids=["", "sync_batch_norm"])
@pytest.mark.parametrize("edges", ["shared memory", "nccl"])
def test_two_replicas(workshop: Workshop, server: str, edges: str, norms: bool) -> None:
    asked, nodes, gpus = EDGES[edges]
    replicas = ("replicas.count=2", "pipeline.stages=1", f"replicas.sync_batch_norm={str(norms).lower()}")
    with in_processes(server, nodes, gpus):
        run = workshop.run(*asked, *replicas, inline=False)
    assert run.error is None and run.summary.status == "finished" and run.summary.all_reduce_bytes > 0
    if SIMULATED:  # a real GPU has other bits
        with in_processes(server):
            same(run, workshop.run(*CPU, *replicas, inline=False, name="cpu"))


@pytest.mark.parametrize("schedule", ["streamed", "1f1b", "zero_bubble", "2bw"])
def test_edges_beside_sums(workshop: Workshop, server: str, schedule: str) -> None:
    """Two replicas of two stages, each with communicators for edges in both directions, for gradients and for norms.

    The stand-in for NCCL looks that no receive starts beside a sum of gradients.
    """
    overrides = (
        *(() if schedule == "streamed" else PIPELINE),
        f"pipeline.schedule={schedule}",
        "replicas={count: 2, sync_batch_norm: true}",
        "pipeline.partition=[2,2]",
    )
    four = ("0", "1", "2", "3")
    with in_processes(server, (), four):
        run = workshop.run(*ON_GPU, *overrides, inline=False)
    # A real GPU has other bits than the processor.
    where, gpus = (CPU, ()) if SIMULATED else (ON_GPU, four)
    with in_processes(server, (), gpus):
        expected = workshop.run(*where, *overrides, inline=False, name="expected")
    assert run.error is None and run.summary.all_reduce_bytes > 0
    same(run, expected)


APART = "replicas.synchronise={average_every: 3 steps"
BESIDE = {
    "copies of the last component": (*METHODS["solo"], "pipeline.stages=4"),
    "a ring": ("pipeline.partition=[1,1,1,1]", "pipeline.virtual_stages=2"),
    "a ring of backpropagation": (
        *PIPELINE,
        "pipeline.schedule=interleaved_1f1b",
        "pipeline.stages=2",
        "pipeline.virtual_stages=2",
    ),
    "mean weights": ("replicas.count=2", "pipeline.stages=1", f"{APART}}}"),
    "late means": (
        "replicas.count=2",
        "pipeline.stages=1",
        f"{APART}, outer: {{}}, fragments: 3, delay: 2}}",
    ),
}
"""What goes from GPU to GPU beside outputs, gradients and their sums. In a ring evaluations go in rounds."""


@pytest.mark.parametrize("beside", BESIDE)
def test_what_else_goes_over_nccl(workshop: Workshop, server: str, beside: str) -> None:
    if BESIDE[beside][:1] == METHODS["solo"]:
        workshop = workshop_in(workshop.folder)
    with in_processes(server, (), ("0", "1", "2", "3")):
        run = workshop.run(*ON_GPU, *BESIDE[beside], inline=False)
    assert run.error is None and run.summary.status == "finished"
    if SIMULATED:  # a real GPU has other bits
        with in_processes(server):
            same(run, workshop.run(*CPU, *BESIDE[beside], inline=False, name="cpu"))


SOMETIMES = """
from torch import nn


class Sometimes(nn.Module):
    def __init__(self, input):
        super().__init__()
        self.always, self.sometimes = (nn.Conv2d(input[0], input[0], 1) for _ in range(2))

    def forward(self, s, mask=None):
        always = self.always(s)
        used = s.device.type == "meta" or float(s.detach().flatten()[0]) > 0
        return always + self.sometimes(s) if used else always
"""


def test_sums_of_norms_beside_gradients_that_one_replica_has(workshop: Workshop, server: str) -> None:
    """The averages of a component are complete earlier there, perhaps before a sum of the norm below it."""
    (workshop.folder / "sometimes_blocks.py").write_text(SOMETIMES)
    overrides = (
        "method={kind: backpropagation}",
        "model.components=[{block: vgg, channels: [4]}, {block: 'python:sometimes_blocks.Sometimes'}]",
        "replicas={count: 2, sync_batch_norm: true}",
        "pipeline={stages: 1}",
    )
    asked, nodes, gpus = EDGES["nccl"]
    with in_processes(server, nodes, gpus):
        run = workshop.run(*asked, *overrides, inline=False)
    assert run.error is None
    if SIMULATED:  # a real GPU has other bits
        with in_processes(server):
            same(run, workshop.run(*CPU, *overrides, inline=False, name="cpu"))


WIDE = """
name: wide
data: {source: synthetic, shape: [2, 8, 8], classes: 4, samples: 64, batch_size: 16, validation_fraction: 0.25}
model:
  components: [{block: linear, width: 512}, {block: linear, width: 512}, {block: linear, width: 512}]
method: {kind: associated_learning, label_dim: 12}
optimizer: {kind: adam, lr: 1e-3}
pipeline: {costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost, *cost]}
run: {epochs: 1, checkpoint: null}
"""


@pytest.mark.skipif(not SIMULATED, reason="the GPU is to have little memory")
def test_stages_that_share_a_gpu_fit_on_it_in_another_partition(
    workshop: Workshop, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two trials of a study, in the same two processes. What the first one kept of the GPU, the second one needs."""
    workshop.spec.write_text(WIDE)

    def run(partition: str, name: str) -> Finished:
        return workshop.run(*HALF_A_GPU, f"pipeline.partition={partition}", inline=False, name=name)

    with in_processes(server, (), ("0", "0")):
        peaks = [run(partition, f"alone {partition}").summary.peak_memory_bytes for partition in ("[2,1]", "[1,2]")]
    needed = max(sum(filter(None, of_run)) for of_run in peaks)
    of_larger = sum(max(filter(None, of_run)) for of_run in peaks)
    limit = (needed + of_larger) // 2
    assert needed < 0.9 * limit  # two larger stages need much more than a larger and a smaller one
    monkeypatch.setenv("ALRAY_TEST_MEMORY", str(limit))
    kept: list[Stage] = []
    try:
        with stage_server(tmp_path) as own_server, in_processes(own_server, (), ("0", "0"), kept):
            runs = [run("[2,1]", "first"), run("[1,2]", "second")]
            assert [each.error for each in runs] == [None, None]
            processes = [stage.pid for stage in kept]
    finally:
        end(kept)
    assert len(set(processes)) == 2


@pytest.mark.skipif(not SIMULATED, reason="the GPU of the command is to have little memory")
def test_a_command_with_a_small_gpu_runs_what_fits_its_cluster(
    workshop: Workshop, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, nodes, gpus = EDGES["nccl"]
    overrides = (*asked, "pipeline.stages=2", "run.epochs=1")
    monkeypatch.setattr(accelerator, "least_memory_bytes", lambda: 10)
    with in_processes(server, nodes, gpus):
        with pytest.raises(PlanError, match="fits the memory of the devices"):
            workshop.run(*overrides, inline=False, name="refused")
        monkeypatch.setattr(ProcessEngine, "measures_devices", lambda engine: True)
        found = StageDevices(memory_bytes=(24 * 10**9,) * 2)
        monkeypatch.setattr(ProcessEngine, "find_devices", lambda engine, *asked: found)
        assert workshop.run(*overrides, inline=False).error is None


SLOW = """
import time

from torch import nn


class Slow(nn.Module):
    def __init__(self, input):
        super().__init__()
        self.norm = nn.BatchNorm2d(input[0])

    def forward(self, s, mask=None):
        if not self.training:
            time.sleep(0.9)
        return self.norm(s)
"""


def test_a_replica_may_wait_on_its_gpu_for_one_that_evaluates(workshop: Workshop, server: str) -> None:
    """Longer than a computation may take; none of the evaluation does."""
    (workshop.folder / "slow_blocks.py").write_text(SLOW)
    asked, nodes, gpus = EDGES["nccl"]
    overrides = (
        *asked,
        "model.components=[{block: 'python:slow_blocks.Slow'}, {block: vgg, channels: [4]}]",
        "replicas={count: 2, sync_batch_norm: true}",
        "pipeline={stages: 1}",
        "run={steps: 9, evaluate_every: 4 steps, checkpoint: null, deadline_s: 2}",
    )
    with in_processes(server, nodes, gpus):
        run = workshop.run(*overrides, inline=False)
    assert run.error is None and len(run.summary.attempts) == 1
