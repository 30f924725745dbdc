"""The meter of tensors: storages, for as long as they live."""

from __future__ import annotations

import pytest
import torch

from alray.runtime.probe.component_memory import MemoryMeter

from ...backward_threads import of_the_calling_thread

KB = 256  # float32 values


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_storages_count_once_and_while_they_live(device: str) -> None:
    outside = torch.zeros(4 * KB, device=device)
    with MemoryMeter([outside]) as meter:
        assert outside.view(4, KB).add_(1.0).shape == (4, KB)
        assert meter.held_bytes == 0, "views of what was there before count nothing"
        made = outside + 1.0
        views = [made.view(4, KB), made[:KB]]
        assert meter.held_bytes == meter.peak_bytes == 4096
        more = torch.zeros(KB, device=device)
        assert (meter.held_bytes, meter.peak_bytes) == (5120, 5120)
        del made
        assert meter.held_bytes == 5120, "its views hold it"
        del views
        assert (meter.held_bytes, meter.peak_bytes) == (1024, 5120)
        assert meter.mark() == meter.peak_bytes == 1024
        del more
    assert meter.held_bytes == 0


@of_the_calling_thread
def test_what_autograd_keeps_is_held_until_the_way_back() -> None:
    weight = torch.ones(KB, requires_grad=True)
    with MemoryMeter([weight]) as meter:
        loss = (weight * 2.0).exp().sum()  # the exponential keeps its result
        assert meter.held_bytes == 1024 + 4
        loss.backward()
        del loss
        assert meter.held_bytes == 1024, "the gradient"
        weight.grad = None
        assert meter.held_bytes == 0
