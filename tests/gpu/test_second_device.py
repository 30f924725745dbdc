"""Stages on another GPU than the first one: nothing of them is on the first."""

from __future__ import annotations

import pytest
import torch

from alray.core import accelerator
from alray.runtime.device import devices
from alray.runtime.graph import inline

from ..engine.conftest import Workshop
from ..engine.test_same_bits import same
from .conftest import DEVICE, GPU, ON_GPU, SIMULATED, needs_two_gpus

pytestmark = needs_two_gpus
SECOND = torch.device(GPU.type, 1)


@pytest.fixture
def on_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in this process compute on the second GPU."""
    monkeypatch.setattr(inline, "_device_of", lambda assignment: SECOND)


@pytest.mark.usefixtures("on_second")
@pytest.mark.parametrize(
    "overrides",
    [
        ("pipeline.partition=[2,2]",),
        ("pipeline.stages=1", "replicas.count=2"),
        ("pipeline.stages=1", "run.precision=bf16"),
    ],
    ids=["stages", "replicas", "bf16"],
)
def test_a_run_on_the_second_gpu(workshop: Workshop, overrides: tuple[str, ...]) -> None:
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats(0)
    before = torch.accelerator.max_memory_allocated(0)
    run = workshop.run(*ON_GPU, *overrides)
    assert run.error is None and torch.accelerator.max_memory_allocated(0) == before
    if SIMULATED:
        same(run, workshop.run("resources.device=cpu", *overrides, name="cpu"))


def test_the_gpu_of_a_stage_has_its_streams_and_events() -> None:
    with devices.configured(1, True, SECOND):
        assert accelerator.current() == SECOND and torch.Event().device == SECOND
    assert devices.pick(DEVICE.partition("=")[2], gpu=1) == SECOND
    accelerator.use(GPU)
