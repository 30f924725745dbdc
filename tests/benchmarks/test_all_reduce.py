"""The benchmark of all-reduces stays runnable: two ranks, one tiny size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.multiprocessing

from alray.config.sections.compression import COMPRESSIONS
from alray.parts.all_reduces.backend.algorithm import BackendAllReduce
from alray.runtime.channel.compression import make_compression
from alray.runtime.channel.gradient_layout import GradientLayout
from benchmarks.all_reduce_accuracy import OF_GRADIENTS
from benchmarks.all_reduce_ranks import SETTINGS, Job, measure, side_of


@pytest.mark.full  # tests/parts/test_all_reduce_laws.py holds what is measured here
def test_everything_is_measured_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    job = Job(ranks=(2,), compressed_ranks=(2,), sides=(8,), cell_s=0.0, trained_ranks=2, epochs=1, seeds=1)
    torch.multiprocessing.spawn(measure, args=(job, tmp_path), nprocs=2)
    result = json.loads((tmp_path / "all_reduce.json").read_text())
    assert len(result["cells"]) == 5 * 6
    assert all(cell["seconds"] > 0 for cell in result["cells"])
    assert [entry["same_gradient"] for entry in result["ddp"]] == [{"backend": True, "ring": True}]
    first, *others = [entry["compression"] for entry in result["accuracy"]]
    assert first == "none" and set(others) == {"fp16", "bf16", "powersgd", "top_k"}
    assert all(entry["same_bits"] and entry["accuracy"] > 0.15 for entry in result["accuracy"])
    whole = result["accuracy"][0]["bytes_per_step"]
    assert whole == 4 * (64 * 128 + 128 + 128 * 128 + 128 + 128 * 10 + 10)


def measure_without_sums(rank: int, job: Job, folder: Path) -> None:
    BackendAllReduce._sum = lambda self, tensor: None
    measure(rank, job, folder)


@pytest.mark.full
def test_a_backend_that_does_not_sum_gives_another_gradient_than_ddp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    job = Job(ranks=(2,), compressed_ranks=(2,), sides=(8,), cell_s=0.0, trained_ranks=0, epochs=1, seeds=1)
    torch.multiprocessing.spawn(measure_without_sums, args=(job, tmp_path), nprocs=2)
    (entry,) = json.loads((tmp_path / "all_reduce.json").read_text())["ddp"]
    assert entry["same_gradient"] == {"backend": False, "ring": True}


@pytest.mark.parametrize("kind", OF_GRADIENTS)
def test_what_is_measured_compresses_gradients(kind: str) -> None:
    layout = GradientLayout((torch.Size([8, 8]),))
    make_compression(COMPRESSIONS.section(kind, **SETTINGS.get(kind, {})), layout)


def test_sizes_are_those_of_square_matrices() -> None:
    assert [side_of(nbytes) for nbytes in (2**10, 2**26)] == [16, 4096]
