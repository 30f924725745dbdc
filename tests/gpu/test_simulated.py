"""The simulated device finds what a GPU would punish. If it did not, no other test on it would mean much."""

from __future__ import annotations

import pytest
import torch

from ..simulated import MACHINE, Fault
from .conftest import GPU, SIMULATED

pytestmark = pytest.mark.skipif(not SIMULATED, reason="of the simulated device itself")
OTHER = torch.device(GPU.type, 1)


@pytest.fixture(autouse=True)
def faults_are_wanted(no_faults: None) -> object:
    yield
    MACHINE.faults.clear()


def test_a_result_of_another_stream_without_a_wait() -> None:
    aside = torch.Stream(GPU)
    with aside:
        made = torch.ones(4, device=GPU)
    with pytest.raises(Fault, match="reads what"):
        made + 1


def test_a_result_of_another_stream_with_a_wait() -> None:
    aside, current = torch.Stream(GPU), torch.accelerator.current_stream(GPU)
    with aside:
        made = torch.ones(4, device=GPU)
        done = aside.record_event()
    current.wait_event(done)
    made.record_stream(current)
    assert torch.equal((made + 1).cpu(), torch.full((4,), 2.0))


def test_what_another_stream_still_reads_is_overwritten() -> None:
    aside = torch.Stream(GPU)
    made = torch.ones(4, device=GPU)
    aside.wait_stream(torch.accelerator.current_stream(GPU))
    with aside:
        read = made + 1
    with pytest.raises(Fault, match="overwrites what"):
        made.zero_()
    aside.synchronize()
    made.zero_()
    assert read.cpu().sum() == 8


def test_memory_that_is_freed_while_another_stream_uses_it() -> None:
    aside = torch.Stream(GPU)
    made = torch.ones(4, device=GPU)
    aside.wait_stream(torch.accelerator.current_stream(GPU))
    with aside:
        kept = made + 1
    del made
    assert [str(each) for each in MACHINE.faults if "was freed while" in str(each)]
    MACHINE.faults.clear()
    again = torch.ones(4, device=GPU)
    aside.wait_stream(torch.accelerator.current_stream(GPU))
    with aside:
        kept = again + 1
    again.record_stream(aside)
    del again
    assert not MACHINE.faults and kept.shape == (4,)


def test_a_copy_to_the_host_is_rubbish_until_the_host_waits() -> None:
    host = torch.empty(4, pin_memory=True).zero_()
    host.copy_(torch.ones(4, device=GPU), non_blocking=True)
    assert not torch.equal(host, torch.ones(4))
    torch.accelerator.synchronize(GPU)
    assert torch.equal(host, torch.ones(4))


def test_pinned_memory_that_is_overwritten_too_early() -> None:
    host = torch.ones(4).pin_memory()
    copied = host.to(GPU, non_blocking=True)
    host.zero_()
    with pytest.raises(Fault, match="changed pinned memory"):
        torch.accelerator.synchronize(GPU)
    assert copied.device == GPU


def test_memory_of_the_host_that_is_not_pinned_is_copied_at_once() -> None:
    host = torch.ones(4)
    copied = host.to(GPU, non_blocking=True)
    host.zero_()
    assert torch.equal(copied.cpu(), torch.ones(4))


def test_devices_are_not_mixed() -> None:
    one = torch.ones(4, device=GPU)
    for other in (torch.ones(4), torch.ones(4, device=OTHER)):
        with pytest.raises(RuntimeError, match="same device"):
            one + other
    assert torch.equal((one + torch.tensor(2.0)).cpu(), torch.full((4,), 3.0))
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.ones(4, device="sim:7")


def test_from_device_to_device() -> None:
    one = torch.arange(4.0, device=GPU)
    assert torch.equal((one.to(OTHER) + 1).to(GPU).cpu(), torch.arange(4.0) + 1)


def test_times_are_not_known_before_they_have_passed() -> None:
    begin, end = torch.Event(GPU, enable_timing=True), torch.Event(GPU, enable_timing=True)
    begin.record()
    end.record()
    with pytest.raises(Fault, match="before they had passed"):
        begin.elapsed_time(end)
    end.synchronize()
    assert begin.elapsed_time(end) >= 0.0


def test_memory_has_an_end() -> None:
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
        torch.empty(MACHINE.limit_bytes + 1, dtype=torch.uint8, device=GPU)


@pytest.mark.parametrize("device", [GPU, OTHER], ids=str)
def test_backward_is_in_a_thread_of_its_own(device: torch.device) -> None:
    import threading

    seen = []
    s = torch.ones(4, device=device, requires_grad=True)
    product = s * 2
    product.register_hook(lambda gradient: seen.append(threading.current_thread().name))
    product.sum().backward()
    assert s.grad is not None and torch.equal(s.grad.cpu(), torch.full((4,), 2.0)) and seen[0].startswith("backward")


def test_recurrent_layers_and_attention_have_the_bits_of_the_processor() -> None:
    torch.manual_seed(0)
    layer, s = torch.nn.LSTM(3, 4, num_layers=2, batch_first=True), torch.randn(2, 5, 3)
    there = torch.nn.LSTM(3, 4, num_layers=2, batch_first=True)
    there.load_state_dict(layer.state_dict())
    there.to(GPU)
    layer(s)[0].sum().backward()
    there(s.to(GPU))[0].sum().backward()
    for one, other in zip(layer.parameters(), there.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None and torch.equal(one.grad, other.grad.cpu())
