"""Ranks as threads of this process, each with a gloo group of its own, and as processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import torch.distributed as dist


@pytest.fixture
def on_ranks() -> Callable[..., list[Any]]:
    """`on_ranks(n, work)` calls work(rank, group) on n ranks at once; what they return, in rank order."""

    def run(size: int, work: Callable[[int, Any], Any]) -> list[Any]:
        store, connected = dist.HashStore(), Barrier(size, timeout=30)

        def rank_work(rank: int) -> Any:
            group = dist.ProcessGroupGloo(store, rank, size, timedelta(seconds=30))
            connected.wait()  # or a rank without work would close its end while another one connects
            return work(rank, group)

        with ThreadPoolExecutor(size) as threads:
            return list(threads.map(rank_work, range(size)))

    return run


@pytest.fixture(scope="session")
def run_script() -> Callable[[str, Path], None]:
    """`run_script(name, folder)` runs a script beside this file, whose processes write what they came to."""

    def run(name: str, folder: Path) -> None:
        script = Path(__file__).with_name(name)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(script.parents[2])}
        command = [sys.executable, str(script), str(folder)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    return run
