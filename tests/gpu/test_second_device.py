"""Stages on another GPU than the first one: nothing of them is on the first."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from alray.core import accelerator
from alray.runtime.channel.gradient_reducer import GradientReducer
from alray.runtime.channel.message import Message, MessageKind
from alray.runtime.channel.pinned import await_copies, to_device
from alray.runtime.device import devices
from alray.runtime.device.memory_used import memory_baseline, peak_memory_bytes
from alray.runtime.graph import inline

from ..engine.conftest import Workshop
from ..engine.test_own_code import with_one_without_weights
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
        ("pipeline.partition=[2,2]", "run.precision=bf16", "run.epochs=1"),
        ("pipeline.stages=1", "replicas.count=2", "run.epochs=1"),
    ],
    ids=["stages", "replicas"],
)
def test_a_run_on_the_second_gpu(
    workshop: Workshop, overrides: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    sums_on: set[torch.device] = set()

    def noted(reducer: GradientReducer, *arguments: Any) -> None:
        sums_on.add(accelerator.current())
        reduce(reducer, *arguments)

    reduce = GradientReducer._reduce
    monkeypatch.setattr(GradientReducer, "_reduce", noted)
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats(0)
    before = torch.accelerator.max_memory_allocated(0)
    with ThreadPoolExecutor(1) as driver:  # which has no current device, as that of a trial
        run = driver.submit(workshop.run, *ON_GPU, *overrides).result()
    assert run.error is None and torch.accelerator.max_memory_allocated(0) == before
    assert sums_on == ({SECOND} if "replicas.count=2" in overrides else set()), (
        "a thread that has no current device sets up the first GPU"
    )
    if SIMULATED:
        same(run, workshop.run("resources.device=cpu", *overrides, name="cpu"))


def test_a_component_without_weights_has_no_sums(workshop: Workshop) -> None:
    keys = (*with_one_without_weights(workshop), "method=channel_goodness", "replicas.count=2")
    run = workshop.run(*ON_GPU, *keys)
    assert run.error is None
    if SIMULATED:
        same(run, workshop.run("resources.device=cpu", *keys, name="cpu"))


def test_the_device_of_a_program_is_the_current_one_again() -> None:
    before = accelerator.current()
    with devices.configured(torch.get_num_threads(), False, SECOND):
        assert accelerator.current() == SECOND
    assert accelerator.current() == before


def test_messages_to_the_second_gpu() -> None:
    with accelerator.using(SECOND):
        message = Message(MessageKind.TRAIN, 1, {"s": accelerator.host_buffer(64, SECOND)})
        to_device(message, SECOND)
        assert message.tensors["s"].device == SECOND
        await_copies(message)
        del message


def test_memory_is_that_of_the_second_gpu() -> None:
    held = torch.zeros(1_000_000, dtype=torch.uint8, device=SECOND)
    before = memory_baseline(SECOND)
    assert before is not None
    assert before >= held.nbytes
    more = torch.zeros(8_000_000, dtype=torch.uint8, device=SECOND)
    assert more.nbytes <= peak_memory_bytes(SECOND, before) < 2 * more.nbytes


def test_the_gpu_of_a_stage_has_its_streams_and_events() -> None:
    with devices.configured(1, True, SECOND):
        assert accelerator.current() == SECOND and torch.Event().device == SECOND
    stream = accelerator.own_stream(SECOND)  # made while another device is the current one
    assert stream is not None and stream.device == SECOND
    assert devices.device_name(SECOND) == accelerator.name(SECOND)
    assert devices.pick(DEVICE.partition("=")[2], gpu=1) == SECOND
    accelerator.use(GPU)
