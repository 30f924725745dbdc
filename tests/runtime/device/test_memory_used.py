"""The measured memory of a stage: what it takes, not what was there before."""

from __future__ import annotations

import pytest
import torch

from alray.runtime.device import memory_used
from alray.runtime.device.memory_used import memory_baseline, peak_memory_bytes

CPU = torch.device("cpu")
SIZE = 64 << 20


def test_what_was_freed_before_is_not_counted_and_what_is_held_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_used, "_had_a_stage", False)
    before = torch.ones(4 * SIZE, dtype=torch.uint8)
    del before
    baseline = memory_baseline(CPU)
    assert baseline is not None
    assert peak_memory_bytes(CPU, baseline) < SIZE / 4
    held = torch.ones(SIZE, dtype=torch.uint8)
    assert 0.9 * SIZE < peak_memory_bytes(CPU, baseline) < 1.5 * SIZE
    del held
    # The peak is remembered.
    assert peak_memory_bytes(CPU, baseline) > 0.9 * SIZE
    assert memory_baseline(CPU) is None, "a later stage may use what this one left"


def test_the_baseline_leaves_random_numbers_alone() -> None:
    state = torch.random.get_rng_state()
    memory_baseline(CPU)
    assert torch.equal(torch.random.get_rng_state(), state)
