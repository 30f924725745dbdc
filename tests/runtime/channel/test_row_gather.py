"""Rows of ranks that are threads of this process, gathered on all of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from alray.config.sections.all_reduce import ALL_REDUCES
from alray.core.parts import names_of
from alray.runtime.channel.all_reduce import make_all_reduce
from alray.runtime.channel.gradient_reducer import CommunicationThread
from alray.runtime.stage.reduction import RowGather

COUNTS = (5, 1, 3)


@pytest.mark.parametrize("name", names_of("all_reduces"))
def test_all_ranks_get_all_rows_in_rank_order(on_ranks, name):
    rows = torch.arange(2.0 * sum(COUNTS)).view(-1, 2)

    def work(rank: int, group: Any) -> list[torch.Tensor]:
        with CommunicationThread() as thread:
            gather = RowGather(make_all_reduce(ALL_REDUCES.section(name), group, timeout_s=20.0), thread)
            found = []
            for counts in (COUNTS, COUNTS[::-1]):
                own = rows.split(counts)[rank].clone()
                gather.start(own, counts)
                own.zero_()
                found.append(gather.wait())
        assert gather.done and gather.bytes_sent > 0 and gather.communication_s > 0.0
        return found

    assert all(torch.equal(found, rows) for of_rank in on_ranks(3, work) for found in of_rank)


def test_nccl_gathers_on_the_gpu_of_the_stage(monkeypatch: pytest.MonkeyPatch):
    """The thread for communication, in which it gathers, has a separate current GPU: the first one."""
    monkeypatch.setattr("alray.core.accelerator.current", lambda: torch.device("cuda", 1))
    group: Any = SimpleNamespace(name=lambda: "nccl", rank=lambda: 0, size=lambda: 2)
    made: list[Any] = []
    own: Any = SimpleNamespace(numel=lambda: 0, device=torch.device("cpu"))
    own.new_empty = lambda shape, device: made.append(device) or torch.empty(shape)
    monkeypatch.setattr(torch.Tensor, "copy_", lambda self, other: self)
    over = make_all_reduce(ALL_REDUCES.section("backend"), group, timeout_s=20.0)
    over.gather(own)
    assert made == [torch.device("cuda", 1)]
