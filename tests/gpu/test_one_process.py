"""One process with a GPU: the same bits on every partition, memory and times as the GPU itself counts them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import alray
from alray.core.run_folder.records import StageRecord, read
from alray.data.batches import Batch
from alray.models.precision import lower
from alray.runtime.stage.gpu_times import GpuTimes

from ..engine.conftest import Workshop
from ..engine.test_same_bits import METHODS, PARTITIONS, SCHEDULES, of_family, same
from .conftest import GPU, ON_GPU, SIMULATED, needs_a_real_gpu

CPU = ("resources.device=cpu", "resources.per_stage={CPU: 1}")
PIPELINE = ("method={kind: backpropagation}", "pipeline.micro_batch_norm=accept", "pipeline.micro_batches=4")
WIDE = """
name: wide
seed: 3
data: {source: synthetic, shape: [8, 32, 32], classes: 10, samples: 1024, batch_size: 128}
model:
  components:
    - {block: vgg, channels: [64]}
    - {block: vgg, channels: [128], pool: true}
    - {block: vgg, channels: [128], pool: true}
method: {kind: associated_learning, label_dim: 64}
optimizer: {kind: adam, lr: 1e-3}
run: {epochs: 3, checkpoint: null, evaluate_every: null}
"""
"""Large enough that the GPU has something to do."""


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_every_partition(workshop: Workshop, gpu_reference, partition) -> None:
    same(workshop.run(*ON_GPU, f"pipeline.partition={partition}"), gpu_reference)


def test_a_stage_that_asks_for_no_gpu_is_on_that_of_the_others(workshop: Workshop, gpu_reference) -> None:
    """All share one device in one process."""
    mixed = "resources.per_stage=[{CPU: 1, GPU: 1}, {CPU: 1}]"
    same(workshop.run(mixed, "pipeline.partition=[2,2]"), gpu_reference)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", ["vgg", "resnet", "lstm", "transformer"])
def test_every_family_method_and_schedule(workshop: Workshop, family: str, method: str, schedule: str) -> None:
    workshop = of_family(workshop, family)
    one = workshop.run(*ON_GPU, *METHODS[method], "pipeline.schedule=sequential", "pipeline.stages=1", name="one")
    same(
        workshop.run(*ON_GPU, *METHODS[method], "pipeline.partition=[1,2,1]", f"pipeline.schedule={schedule}"),
        one,
    )


def test_a_checkpoint_goes_on_to_the_same_bits(workshop: Workshop, gpu_reference) -> None:
    workshop.run(*ON_GPU, "pipeline.stages=1", "run.epochs=2")
    same(workshop.resume("run.epochs=3", "pipeline.partition=[2,2]"), gpu_reference)


class OnGpu(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Gives samples and vectors of targets that lie on the GPU."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        sample = torch.randn(4, generator=torch.Generator().manual_seed(index))
        return sample.to(GPU), sample[:2].to(GPU)


def test_samples_and_targets_of_a_program_may_lie_on_the_gpu(tmp_path: Path) -> None:
    cost = {"forward_s": 1e-3, "backward_s": 1e-3, "update_s": 1e-3}
    spec = {
        "name": "given",
        "data": {"batch_size": 16},
        "model": {"components": [{"block": "linear", "width": 8}] * 2},
        "method": "backpropagation",
        "pipeline": {"stages": 1, "costs": [cost] * 2},
        "run": {"epochs": 1},
        "resources": {"device": GPU.type, "per_stage": {"CPU": 1, "GPU": 1}},
    }
    run = alray.run(spec, data=(OnGpu(), None, OnGpu()), inline=True, progress=False, output=tmp_path / "run")
    on_cpu = torch.randn(3, 4)
    given = run.activations(on_cpu.to(GPU))
    assert all(map(torch.equal, given, run.activations(on_cpu)))


@pytest.mark.skipif(not SIMULATED, reason="a real GPU has other bits than the processor")
def test_a_checkpoint_goes_on_on_another_device(workshop: Workshop, gpu_reference) -> None:
    """From the processor to the GPU and back."""
    for epochs, device in enumerate((CPU, ON_GPU, CPU), 1):
        overrides = (*device, "pipeline.stages=1", f"run.epochs={epochs}")
        last = workshop.run(*overrides) if epochs == 1 else workshop.resume(*overrides, allow_change=True)
    same(last, gpu_reference)


@pytest.mark.parametrize("precision", ["bf16", "float64"])
def test_other_precisions(workshop: Workshop, gpu_reference, precision: str) -> None:
    overrides = (*ON_GPU, f"run.precision={precision}")
    one = workshop.run(*overrides, "pipeline.stages=1")
    same(workshop.run(*overrides, "pipeline.partition=[1,2,1]", name="three"), one)
    assert one.summary.weights_sha256 != gpu_reference.summary.weights_sha256


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_texts_in_mixed_precision(workshop: Workshop, family: str) -> None:
    """cuDNN would compute an LSTM in float16."""
    workshop = of_family(workshop, family)
    overrides = (*ON_GPU, *METHODS["associated_learning"], "run.precision=bf16")
    one = workshop.run(*overrides, "pipeline.partition=[4]")
    same(workshop.run(*overrides, "pipeline.partition=[1,2,1]", name="three"), one)


def test_recurrent_layers_stay_in_float32() -> None:
    layer = nn.LSTM(8, 4, batch_first=True).to(GPU)
    s = 1.0e5 * torch.rand(3, 5, 8, device=GPU)  # float16 ends at 65504
    wanted, _ = layer(s)
    lower(layer, torch.bfloat16)
    outputs, _ = layer(s)
    assert outputs.dtype == torch.float32 and torch.equal(outputs, wanted)


@needs_a_real_gpu
def test_the_probe_leaves_no_memory_behind(make_planner: Callable[..., Any]) -> None:
    """A stage of another process may need it. What stays are workspaces of cuBLAS."""
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats()
    before = torch.accelerator.memory_reserved()
    make_planner(*ON_GPU, "pipeline.stages=1", text=WIDE).costs(probe=True)
    assert torch.accelerator.memory_reserved() - before < 100e6
    assert torch.accelerator.max_memory_reserved() - before > 100e6


@needs_a_real_gpu
@pytest.mark.parametrize("method", ["associated_learning", "backpropagation"])
def test_compiled(workshop: Workshop, method: str) -> None:
    overrides = (*ON_GPU, f"method={{kind: {method}}}", "run.compile=true")
    one = workshop.run(*overrides, "pipeline.stages=1")
    assert one.error is None and one.summary.status == "finished"
    if method == "associated_learning":
        same(workshop.run(*overrides, "pipeline.partition=[2,2]", name="two"), one)


def test_a_stage_on_a_gpu_reads_pinned_memory_and_times_by_events(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned: list[bool] = []
    with_labels, passed, timed = Batch.with_labels, GpuTimes.passed, []
    monkeypatch.setattr(
        Batch, "with_labels", lambda self, *to: (pinned.append(self.samples.is_pinned()), with_labels(self, *to))[1]
    )
    monkeypatch.setattr(GpuTimes, "passed", lambda self, *, wait: (timed.append(wait), passed(self, wait=wait))[1])
    run = workshop.run(*ON_GPU, "pipeline.stages=1", "run={steps: 2}")
    assert run.error is None
    assert pinned == [True] * 2 and True in timed


def test_without_deterministic_algorithms(workshop: Workshop) -> None:
    run = workshop.run(*ON_GPU, "run.deterministic=false", "pipeline.stages=1")
    assert run.error is None and run.summary.status == "finished"


@needs_a_real_gpu
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_memory_is_predicted_within_15_percent(workshop: Workshop, precision: str) -> None:
    workshop.spec.write_text(WIDE)
    summary = workshop.run(*ON_GPU, f"run.precision={precision}", "pipeline.stages=1").summary
    (measured,), (predicted,) = summary.peak_memory_bytes, summary.predicted_memory_bytes
    assert measured is not None and predicted == pytest.approx(measured, rel=0.15)


@needs_a_real_gpu
def test_what_a_stage_computes_is_what_the_gpu_computes(workshop: Workshop) -> None:
    """F, B and U fill most of a step. By the host's clock F and U would be a small part of it."""
    workshop.spec.write_text(WIDE)
    run = workshop.run(*ON_GPU, "pipeline.stages=1", "run.epochs=20")
    records = [each for each in read(Path(run.summary.run_dir) / "records.jsonl") if isinstance(each, StageRecord)]
    steady = [each for each in records if not each.warm_up]
    computed = sum(each.forward_s + each.backward_s + each.update_s for each in steady)
    covered = sum(sum(each.step_times_s) for each in steady)
    forward = sum(each.forward_s for each in steady)
    assert 0.5 * covered < computed < 1.05 * covered
    assert 0.05 * computed < forward < 0.6 * computed  # on an H200: 0.10
