"""Stages in processes of their own, on one GPU and on two.

On one, messages go through pinned memory; on two, through NCCL; and to a processor of another node through gloo. The
GPUs are simulated ones, with a stand-in for NCCL, or one real GPU stands for both, with NCCL itself
(tests/gpu/one_gpu.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..engine.conftest import Workshop
from ..engine.process_graph import in_processes, stage_server
from ..engine.test_same_bits import same
from .conftest import HALF_A_GPU, ON_GPU, ONE_GPU, SIMULATED
from .test_one_process import PIPELINE

pytestmark = pytest.mark.skipif(not (SIMULATED or ONE_GPU), reason="through Ray it is tested in test_on_ray.py")
EDGES: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str | None, ...]]] = {
    "shared memory": (HALF_A_GPU, (), ("0", "0")),
    "gloo": (("resources.per_stage=[{CPU: 1, GPU: 1}, {CPU: 1}]",), ("one", "other"), ("0", None)),
    "nccl": (ON_GPU, (), ("0", "1")),
}
"""What each stage asks for, its node and its device."""


def bits_are_those_of_one_gpu(edges: str) -> bool:
    """A simulated device has those of a processor. A real one has others."""
    return SIMULATED or edges != "gloo"


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
    overrides = (*asked, "replicas.count=2", "pipeline.stages=1", f"replicas.sync_batch_norm={str(norms).lower()}")
    with in_processes(server, nodes, gpus):
        run = workshop.run(*overrides, inline=False)
    assert run.error is None and run.summary.status == "finished" and run.summary.all_reduce_bytes > 0


@pytest.mark.parametrize("method", ["associated_learning", "backpropagation"])
def test_edges_beside_sums(workshop: Workshop, server: str, method: str) -> None:
    """Two replicas of two stages, each with communicators for edges in both directions, for gradients and for norms."""
    of_method = PIPELINE[1:] if method == "backpropagation" else ()
    overrides = (
        *ON_GPU,
        f"method={{kind: {method}}}",
        *of_method,
        "replicas={count: 2, sync_batch_norm: true}",
        "pipeline.partition=[2,2]",
    )
    with in_processes(server, (), ("0", "1", "2", "3")):
        run = workshop.run(*overrides, inline=False)
        again = workshop.run(*overrides, inline=False, name="again")
    assert run.error is None and run.summary.all_reduce_bytes > 0
    assert run.summary.weights_sha256 == again.summary.weights_sha256


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
