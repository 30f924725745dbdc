"""The benchmark of all-reduces stays runnable: two ranks, one tiny size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch.multiprocessing

from benchmarks.all_reduce_ranks import Job, measure, side_of


@pytest.mark.full  # tests/runtime/channel/test_all_reduce.py holds what is measured here
def test_everything_is_measured_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    job = Job(ranks=(2,), compressed_ranks=(2,), sides=(8,), cell_s=0.0, trained_ranks=2, epochs=1, seeds=1)
    torch.multiprocessing.spawn(measure, args=(job, tmp_path), nprocs=2)
    result = json.loads((tmp_path / "all_reduce.json").read_text())
    assert len(result["cells"]) == 5 * 6
    assert all(cell["seconds"] > 0 for cell in result["cells"])
    assert [entry["same_gradient"] for entry in result["ddp"]] == [True]
    assert [entry["compression"] for entry in result["accuracy"]] == [
        "none",
        "fp16",
        "bf16",
        "qsgd",
        "powersgd",
        "top_k",
    ]
    assert all(entry["same_bits"] and entry["accuracy"] > 0.15 for entry in result["accuracy"])
    whole = result["accuracy"][0]["bytes_per_step"]
    assert whole == 4 * (64 * 128 + 128 + 128 * 128 + 128 + 128 * 10 + 10)


def test_sizes_are_those_of_square_matrices() -> None:
    assert [side_of(nbytes) for nbytes in (2**10, 2**26)] == [16, 4096]
