"""What is asked of an accelerator and needs none here; tests/gpu asks the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch

from alray.core import accelerator
from alray.core.errors import SystemFault
from alray.core.randomness.generators import put_back, seed_all, seed_torch
from alray.data.batches import Batch

GPU = torch.device("cuda", 1)


def test_a_cpu_has_nothing_to_wait_for() -> None:
    cpu = torch.device("cpu")
    assert accelerator.own_stream(cpu) is None
    accelerator.wait_for_all(cpu)
    accelerator.free_unused_memory()
    assert not accelerator.is_accelerator(cpu) and not accelerator.is_accelerator(torch.device("meta"))
    with accelerator.within(None), accelerator.generators_forked(cpu):
        torch.rand(1)
    assert not accelerator.host_buffer(8, cpu).is_pinned() and accelerator.pin(torch.zeros(8), cpu) is None


class Driver:
    """Notes what it is asked for, and which device is the current one then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.did: list[tuple[str, int]] = []
        self.current = 0
        monkeypatch.setattr(torch.accelerator, "device_index", self.device_index)

    @contextmanager
    def device_index(self, index: int) -> Iterator[None]:
        self.current, before = index, self.current
        yield
        self.current = before

    def noted(self, what: str) -> Callable[..., None]:
        return lambda *arguments: self.did.append((what, self.current))


def test_memory_is_pinned_and_unpinned_on_the_gpu_of_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that has no current device yet would set up the first GPU, and take memory of it."""
    driver = Driver(monkeypatch)
    calls = SimpleNamespace(cudaHostRegister=driver.noted("pin"), cudaHostUnregister=driver.noted("unpin"))
    monkeypatch.setattr("torch.cuda.cudart", lambda: calls)
    checked: list[None] = []
    monkeypatch.setattr("torch.cuda.check_error", checked.append)
    address = accelerator.pin(torch.zeros(8), GPU)
    assert address is not None
    accelerator.unpin(address, GPU)
    assert driver.did == [("pin", 1), ("unpin", 1)] and len(checked) == 2


def test_memory_of_the_host_that_cannot_be_pinned_is_none_of_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch words both alike: a larger GPU would be no help."""

    def full(*arguments: object, **named: object) -> None:
        raise torch.AcceleratorError("CUDA error: out of memory", 2)

    calls = SimpleNamespace(cudaHostRegister=full)
    monkeypatch.setattr("torch.cuda.cudart", lambda: calls)
    monkeypatch.setattr(torch.accelerator, "device_index", lambda index: nullcontext())
    batch = Batch(0, torch.zeros(2), torch.zeros(2))
    monkeypatch.setattr(torch, "empty", full)
    monkeypatch.setattr(torch.Tensor, "pin_memory", full)
    for pinned in (lambda: accelerator.pin(torch.zeros(8), GPU), lambda: accelerator.host_buffer(8, GPU)):
        with pytest.raises(SystemFault, match="memory of the host"):
            pinned()
    given = batch.pin_memory()  # an error that it raised would lose its hint in the thread of torch's loader
    assert isinstance(given, SystemFault) and given.problems[0].hint is not None


def test_the_random_numbers_of_the_gpu_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    forked: list[dict[str, object]] = []
    monkeypatch.setattr(torch.random, "fork_rng", lambda **named: forked.append(named))
    accelerator.generators_forked(GPU)
    assert forked == [{"devices": [GPU], "device_type": "cuda"}]


def test_one_gpu_is_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The current device may be another one."""
    driver = Driver(monkeypatch)
    monkeypatch.setattr(torch, "get_device_module", lambda device: SimpleNamespace(manual_seed=driver.noted("seed")))
    accelerator.seed(GPU, 3)
    assert driver.did == [("seed", 1)]


def test_a_stage_seeds_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of the CPU, from which blocks draw too."""
    of_gpu = torch.Generator()
    monkeypatch.setattr(accelerator, "seed", lambda device, value: of_gpu.manual_seed(value))

    def drawn() -> list[float]:
        return [*torch.rand(2, generator=of_gpu).tolist(), *torch.rand(2).tolist()]

    with put_back():
        seed_torch(GPU, 3, "dropout")
        first = drawn()
        assert first[:2] == first[2:]
        seed_all(GPU, 3, "dropout")
        assert drawn() == first
