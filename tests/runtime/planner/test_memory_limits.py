"""Memory limits of stages, and micro-batches that follow them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from alray.core.errors import PlanError, SpecError
from alray.planning.prediction.setting import IN_TURNS_ON_GPU, ON_CPU, ON_OWN_GPU, ON_SHARED_GPU, StageMemory
from alray.planning.prediction.stage_devices import StageDevices
from alray.runtime.device.machine_memory import machine_memory_bytes
from alray.runtime.planner.memory_limits import require_memory, stage_memories, stage_memory_limits
from alray.runtime.planner.stage_devices import with_their_resources

from ...pairwise import first_alone

CPU = torch.device("cpu")
BY_GPIPE = "method={kind: backpropagation}"


def gpipe(*, stages: int = 1, norm: str = "accept", micro_batches: str = "auto") -> str:
    return f"pipeline={{schedule: gpipe, stages: {stages}, micro_batches: {micro_batches}, micro_batch_norm: {norm}}}"


@pytest.mark.parametrize(
    ("resources", "replicas", "expected"),
    [
        ("resources={memory_bytes: 1000}", 1, (1000, 1000)),
        ("resources={per_stage: {CPU: 1, memory: 5000}}", 1, (5000, 5000)),
        ("resources={per_stage: [{CPU: 1, memory: 5000}, {CPU: 1, memory: 7000}]}", 1, (5000, 7000)),
        ("resources={memory_bytes: 10, per_stage: {memory: 5000}}", 1, (10, 10)),
        ("resources.threads=1", 1, (machine_memory_bytes() // 2,) * 2),
        ("resources.threads=1", 3, (machine_memory_bytes() // 6,) * 2),
    ],
)
def test_limits_of_stages(
    load_small: Callable[..., Any], resources: str, replicas: int, expected: tuple[int, ...]
) -> None:
    spec = load_small("pipeline.stages=2", resources).spec
    assert stage_memory_limits(spec, 2, replicas, CPU) == expected


@pytest.mark.parametrize(
    ("on", "given", "expected"),
    [("2xT4", 64 * 10**9, 15 * 10**9), ("2xT4", 10**9, 10**9), ("2xcpu", 10**9, 10**9)],
)
def test_a_planned_device_has_no_more_than_is_published(
    load_small: Callable[..., Any], on: str, given: int, expected: int
) -> None:
    """1 GB of a T4 is left to libraries. Nothing is known of a processor."""
    spec = load_small(f"machines={{nodes: {on}}}", f"resources.memory_bytes={given}").spec
    assert stage_memory_limits(with_their_resources(spec), 2, 1, CPU) == (expected,) * 2


def test_stages_on_processors_of_other_machines_have_a_part_of_these(load_small: Callable[..., Any]) -> None:
    """The node of the command may have less, or more. Until theirs is known, no limit is."""
    spec = load_small("pipeline.stages=2").spec
    assert stage_memory_limits(spec, 2, 1, CPU, found=StageDevices(memory_bytes=(1200, 6000))) == (1200, 6000)
    assert stage_memory_limits(spec, 2, 1, CPU, found=StageDevices(to_measure=True)) == ()


def test_a_gpu_that_is_elsewhere_has_no_known_memory(load_small: Callable[..., Any]) -> None:
    """The driver may run where there is no GPU."""
    spec = load_small("pipeline.stages=2", "resources.per_stage={GPU: 1}").spec
    assert stage_memory_limits(spec, 2, 1, CPU) == ()
    given = load_small("pipeline.stages=2", "resources.per_stage={GPU: 1, memory: 5000}").spec
    assert stage_memory_limits(given, 2, 1, CPU) == (5000, 5000)


@pytest.mark.parametrize(
    ("gpus", "one_process", "expected"),
    [
        ("1", False, (78_000_000_000,) * 2),
        ("0.25", False, (18_750_000_000,) * 2),
        ("0.01", False, (1, 1)),
        ("1", True, (39_500_000_000,) * 2),
    ],
)
def test_the_part_of_a_gpu_that_a_stage_has(
    load_small: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    gpus: str,
    one_process: bool,
    expected: tuple[int, ...],
) -> None:
    """It is what the stage asks Ray for, on whatever node. In one process the stages share the GPU that is there.

    1 GB is left for what this process takes beside tensors, and 1 GB for what that of each stage takes.
    """
    monkeypatch.setattr("alray.core.accelerator.count", lambda: 2)
    sizes = [SimpleNamespace(total_memory=size) for size in (96_000_000_000, 80_000_000_000)]  # the smaller one counts
    monkeypatch.setattr("torch.cuda.get_device_properties", sizes.__getitem__)
    spec = load_small("pipeline.stages=2", f"resources.per_stage={{GPU: {gpus}}}").spec
    assert stage_memory_limits(spec, 2, 1, torch.device("cuda", 0), one_process=one_process) == expected


def test_a_trial_in_one_process_has_the_part_of_a_gpu_that_it_asked_for(
    load_small: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alray.core.accelerator.least_memory_bytes", lambda: 80_000_000_000)
    monkeypatch.setattr("alray.runtime.device.devices._given", ("0",))
    spec = load_small("pipeline.stages=1", "resources.per_stage={GPU: 0.25}").spec
    assert stage_memory_limits(spec, 1, 1, torch.device("cuda", 0), one_process=True) == (19_000_000_000,)


def test_memory_of_the_node_is_none_of_the_gpu(load_small: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two limits the smaller one holds: what Ray reserves, and what the GPU has."""
    monkeypatch.setattr("alray.core.accelerator.least_memory_bytes", lambda: 80_000_000_000)
    stages = "[{GPU: 1, memory: 200000000000}, {GPU: 1, memory: 5000}]"
    spec = load_small("pipeline.stages=2", f"resources.per_stage={stages}").spec
    assert stage_memory_limits(spec, 2, 1, torch.device("cuda", 0)) == (78_000_000_000, 5000)


def test_a_process_without_a_gpu_of_its_own_knows_those_that_it_sees(
    load_small: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a trial of several stages, which computes on its processor."""
    monkeypatch.setattr("alray.core.accelerator.available", lambda kind: torch.device("cuda", 0))
    monkeypatch.setattr("alray.core.accelerator.least_memory_bytes", lambda: 80_000_000_000)
    spec = load_small("pipeline.stages=2", "resources.per_stage={GPU: 1}").spec
    assert stage_memory_limits(spec, 2, 1, CPU) == (78_000_000_000,) * 2


def test_in_one_process_a_stage_that_asks_for_no_gpu_is_on_it_too(
    load_small: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alray.core.accelerator.least_memory_bytes", lambda: 80_000_000_000)
    spec = load_small("pipeline.stages=2", "resources.per_stage=[{CPU: 1, GPU: 1}, {CPU: 1}]").spec
    gpu = torch.device("cuda", 0)
    assert stage_memory_limits(spec, 2, 1, gpu, one_process=True) == (39_500_000_000,) * 2
    assert stage_memories(spec, 2, 1, one_process=True) == (IN_TURNS_ON_GPU,) * 2


def test_a_stage_on_a_smaller_gpu_of_another_node(
    load_small: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was measured there. A GPU that was not counts as the one here."""
    monkeypatch.setattr("alray.core.accelerator.least_memory_bytes", lambda: 80_000_000_000)
    spec = load_small("pipeline.stages=2", "resources.per_stage={GPU: 1}").spec
    on_gpu = stage_memory_limits(
        spec, 2, 1, torch.device("cuda", 0), found=StageDevices(memory_bytes=(None, 24_000_000_000))
    )
    assert on_gpu == (78_000_000_000, 22_000_000_000)
    assert (
        stage_memory_limits(spec, 2, 1, CPU, found=StageDevices(memory_bytes=(24_000_000_000,) * 2))
        == (22_000_000_000,) * 2
    )
    assert stage_memory_limits(spec, 2, 1, CPU, found=StageDevices(memory_bytes=(None, 24_000_000_000))) == ()


def test_a_stage_on_a_processor_has_nothing_of_a_gpu(
    load_small: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the others counts all the same, measured or here, and so does the `memory` that it asks for."""
    monkeypatch.setattr("alray.core.accelerator.least_memory_bytes", lambda: 80_000_000_000)
    measured = StageDevices(memory_bytes=(None, 24_000_000_000))
    spec = load_small("pipeline.stages=2", "resources.per_stage=[{CPU: 1}, {CPU: 1, GPU: 1}]").spec
    of_cpu, of_gpu = stage_memory_limits(spec, 2, 1, CPU, found=measured)
    assert of_cpu > 10**15 and of_gpu == 22_000_000_000
    assert stage_memory_limits(spec, 2, 1, torch.device("cuda", 0)) == (of_cpu, 78_000_000_000)
    assert stage_memory_limits(spec, 2, 1, CPU) == ()
    assert stage_memory_limits(spec, 2, 1, CPU, found=StageDevices(memory_bytes=(None, None))) == ()
    asked = load_small("pipeline.stages=2", "resources.per_stage=[{CPU: 1, memory: 5000}, {CPU: 1, GPU: 1}]").spec
    assert stage_memory_limits(asked, 2, 1, CPU, found=measured) == (5000, 22_000_000_000)


@pytest.mark.parametrize(
    ("resources", "replicas", "one_process", "expected"),
    [
        ("threads=1", 1, False, (ON_CPU, ON_CPU)),
        ("per_stage={GPU: 1}", 1, False, (ON_OWN_GPU, ON_OWN_GPU)),
        ("per_stage={GPU: 0.5}", 1, False, (ON_SHARED_GPU, ON_SHARED_GPU)),
        ("per_stage={GPU: 0.5}", 2, False, (ON_OWN_GPU, ON_OWN_GPU)),  # neighbours may have different ones
        ("per_stage=[{CPU: 1}, {GPU: 1}]", 1, False, (ON_CPU, ON_SHARED_GPU)),
        ("per_stage={GPU: 1}", 1, True, (IN_TURNS_ON_GPU, IN_TURNS_ON_GPU)),
    ],
)
def test_what_of_a_stage_lies_on_its_gpu(
    load_small: Callable[..., Any],
    resources: str,
    replicas: int,
    one_process: bool,
    expected: tuple[StageMemory, ...],
) -> None:
    spec = load_small("pipeline.stages=2", f"resources.{resources}").spec
    assert stage_memories(spec, 2, replicas, one_process=one_process) == expected


def test_messages_of_an_accelerator_without_nccl_wait_in_host_memory(load_small: Callable[..., Any]) -> None:
    spec = load_small("pipeline.stages=2", "resources={device: xpu, per_stage: {GPU: 1}}").spec
    assert stage_memories(spec, 2, 1) == (ON_SHARED_GPU, ON_SHARED_GPU)


def test_a_first_mini_batch_on_a_gpu_may_take_long(make_planner: Callable[..., Any]) -> None:
    deadlines = []
    for resources in ("resources.threads=1", "resources.per_stage={CPU: 1, GPU: 1}"):
        planner = make_planner("pipeline.stages=2", resources)
        deadlines.append(planner.plan(planner.costs(probe=False)).deadline_s)
    assert deadlines[1] == pytest.approx(deadlines[0] + 60.0)


def test_a_driver_without_a_gpu_plans_for_stages_that_have_one(
    make_planner: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head node may have none, and so may a laptop."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    planner = make_planner("pipeline.stages=2", "resources.per_stage={CPU: 1, GPU: 1}")
    assert planner.workload.device == CPU
    plan = planner.plan(planner.costs(probe=False))
    assert plan.stages == 2 and plan.cores is None  # each stage has its own device
    on_processors = make_planner("pipeline.stages=2")
    counted = on_processors.plan(on_processors.costs(probe=False))
    memory, as_counted = plan.stage_plans[0].memory, counted.stage_plans[0].memory
    training, as_trained = (
        each.total_bytes - each.channel_bytes - each.snapshot_bytes for each in (memory, as_counted)
    )
    assert training == pytest.approx(as_trained, rel=0.3)
    assert memory.snapshot_bytes == 0 < as_counted.snapshot_bytes


def need(planner: Any) -> int:
    return max(own.memory.total_bytes for own in planner.plan(planner.costs(probe=False)).stage_plans)


@pytest.mark.full
@pytest.mark.parametrize("stages", first_alone([2, 1]))
def test_auto_is_the_largest_micro_batch_that_fits(make_planner: Callable[..., Any], stages: int) -> None:
    needs = {
        number: need(make_planner(BY_GPIPE, gpipe(stages=stages, micro_batches=str(number)))) for number in (2, 4, 8)
    }
    assert needs[2] > needs[4] > needs[8]
    for number in (4, 8):
        planner = make_planner(BY_GPIPE, gpipe(stages=stages), f"resources.memory_bytes={needs[number]}")
        assert planner.workload.spec.pipeline.micro_batches == planner.workload.spec.micro_batches == number
        assert planner.plan(planner.costs(probe=False)).micro_batches == number
    roomy = make_planner(BY_GPIPE, gpipe(stages=stages), "resources.memory_bytes=1000000000")
    assert roomy.workload.spec.micro_batches == stages
    with pytest.raises(PlanError, match=r"pipeline\.micro_batches: even in 8 micro-batches, of 1 sample each, stage"):
        make_planner(BY_GPIPE, gpipe(stages=stages), f"resources.memory_bytes={needs[8] // 2}")


def test_auto_counts_what_replicas_need_for_their_averages(make_planner: Callable[..., Any]) -> None:
    two = (BY_GPIPE, "replicas.count=2")
    whole = need(make_planner(*two, gpipe(micro_batches="1")))
    assert make_planner(*two, gpipe(), f"resources.memory_bytes={whole}").workload.spec.micro_batches == 1
    planner = make_planner(*two, gpipe(), f"resources.memory_bytes={whole - 1}")
    assert planner.workload.spec.micro_batches == 2 and need(planner) < whole


def test_batch_normalisation_is_refused_where_auto_cuts(make_planner: Callable[..., Any]) -> None:
    with pytest.raises(SpecError, match="batch normalisation"):
        make_planner(BY_GPIPE, gpipe(stages=2, norm="refuse"))
    # On one stage it may be that nothing is cut.
    assert make_planner(BY_GPIPE, gpipe(norm="refuse")).workload.spec.micro_batches == 1
    tight = need(make_planner(BY_GPIPE, gpipe(micro_batches="4")))
    with pytest.raises(PlanError, match="each of the 4 micro-batches would be normalised"):
        make_planner(BY_GPIPE, gpipe(norm="refuse"), f"resources.memory_bytes={tight}")


def test_where_no_cut_fits_the_plan_says_so(make_planner: Callable[..., Any]) -> None:
    planner = make_planner("pipeline.stages=2", "resources.memory_bytes=1000")
    with pytest.raises(PlanError) as caught:
        planner.plan(planner.costs(probe=False))
    (problem,) = caught.value.problems
    assert "stage 1 needs" in problem.message and "and has 1,000" in problem.message
    assert problem.key == "pipeline.partition" and "resources.memory_bytes" in (problem.hint or "")


FROZEN = """\
from torch import nn


def block(input):
    return nn.Sequential(nn.Linear(input[0], 100), nn.Linear(100, 100).requires_grad_(False))
"""


def test_a_frozen_component_needs_no_memory_for_gradients(
    make_workload: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = "model.components=[{block: 'python:own_blocks.block'}, {block: linear, width: 4}]"
    workload = make_workload("method=backpropagation", "data.shape=[4]", blocks, code=FROZEN)
    weights, trained = 4 * (5 * 100 + 101 * 100), 4 * 5 * 100
    memory = "alray.runtime.planner.memory_limits.machine_memory_bytes"
    monkeypatch.setattr(memory, lambda: weights + trained)
    require_memory(workload)
    monkeypatch.setattr(memory, lambda: weights + trained - 1)
    with pytest.raises(PlanError, match="their gradients"):
        require_memory(workload)
