"""All-reduces among real processes over loopback; what each rank does is in `all_reduce_ranks.py`.

Sums, rows and bytes are in `tests/parts/test_all_reduce_laws.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from alray.config.sections.all_reduce import ALL_REDUCES
from alray.core.errors import ChannelError
from alray.core.parts import names_of
from alray.runtime.channel.all_reduce import all_reduce_class, make_all_reduce

pytestmark = pytest.mark.forked

WORLD = 5
HAND_WRITTEN = [name for name in names_of("all_reduces") if name != "backend"]
Found = list[dict[str, Any]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, run_script: Callable[[str, Path], None]) -> Found:
    """What every process came to; five processes for all cases."""
    folder = tmp_path_factory.mktemp("ranks")
    run_script("all_reduce_ranks.py", folder)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(WORLD)]


def members(found: Found, case: str) -> list[Any]:
    """What the ranks of a case's group came to, in the order of their ranks in it."""
    return [by_case[case] for by_case in found if case in by_case]


@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("name", ["backend", "ring"])
def test_powersgd_equals_torchs_hook(found, name, width):
    for differences in members(found, f"powersgd {name} {width}"):
        assert len(differences) == 6
        assert max(differences) < 1e-11


@pytest.mark.parametrize("name", HAND_WRITTEN)
def test_a_rank_that_never_comes_is_named(found, name):
    told = members(found, f"lost {name}")[0]
    assert told.startswith(f"edge rank 2 -> rank 0 of the {name} all-reduce: the neighbour is silent (Timed out ")


def test_the_backend_does_not_wait_for_ever_either(found):
    told = members(found, "lost backend")[0]
    assert told.startswith("edge rank 0 with its 2 peers of the backend's all-reduce: the neighbour is silent (")


def test_what_is_not_one_flat_buffer_is_refused(on_ranks):
    def work(rank: int, group: Any) -> None:
        make_all_reduce(ALL_REDUCES.section("ring"), group, timeout_s=5.0).sum(torch.zeros(2, 2))

    with pytest.raises(ChannelError, match=r"flat contiguous tensor, got shape \(2, 2\)"):
        on_ranks(1, work)


@pytest.mark.parametrize(("holds_host", "limits"), [(True, [(timedelta(seconds=10),)] * 2), (False, [()] * 2)])
def test_on_a_gpu_the_host_waits_only_where_it_is_to(monkeypatch, holds_host, limits):
    """With a time limit NCCL holds the calling thread; without one, the current stream waits."""
    waited: list[tuple[Any, ...]] = []
    work = SimpleNamespace(wait=lambda *limit: waited.append(limit))
    group: Any = SimpleNamespace(
        name=lambda: "nccl",
        rank=lambda: 0,
        size=lambda: 2,
        allreduce=lambda *arguments: work,
        allgather=lambda *arguments: work,
    )
    backend = all_reduce_class(ALL_REDUCES.section("backend"))
    monkeypatch.setattr("alray.core.accelerator.current", lambda: torch.device("meta", 0))
    monkeypatch.setattr("alray.core.accelerator.is_accelerator", lambda device: device.type == "meta")
    sums = backend(group, timeout_s=5.0, holds_host=holds_host)
    sums.sum(torch.zeros(4, device="meta"))
    sums.gather(torch.zeros(4, device="meta"))
    assert waited == limits


def test_over_gloo_the_time_limit_holds_within_a_computation(on_ranks):
    """There only NCCL leaves the waiting to the GPU."""
    over = Event()

    def work(rank: int, group: Any) -> str:
        if rank == 1:
            over.wait(10.0)
            return ""
        sums = all_reduce_class(ALL_REDUCES.section("backend"))(group, timeout_s=0.1, holds_host=False)
        with pytest.raises(ChannelError) as caught:
            sums._wait_for(group.recv([torch.zeros(1)], 1, 0), "1->0")
        over.set()
        return str(caught.value)

    assert "the neighbour is silent" in on_ranks(2, work)[0]
