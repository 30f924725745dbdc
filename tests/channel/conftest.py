"""Ranks as threads of this process, each with a gloo group of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist


@pytest.fixture
def on_ranks() -> Callable[..., list[Any]]:
    """`on_ranks(n, work)` calls work(rank, group) on n ranks at once; what they return, in rank order."""

    def run(size: int, work: Callable[[int, Any], Any]) -> list[Any]:
        store = dist.HashStore()

        def rank_work(rank: int) -> Any:
            return work(rank, dist.ProcessGroupGloo(store, rank, size, timedelta(seconds=30)))

        with ThreadPoolExecutor(size) as threads:
            return list(threads.map(rank_work, range(size)))

    return run
