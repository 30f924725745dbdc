"""The gradients of components averaged over ranks that are threads of this process."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from alray.config.sections.all_reduce import ALL_REDUCES
from alray.config.sections.compression import COMPRESSIONS
from alray.core.errors import ChannelError
from alray.core.parts import names_of
from alray.planning.prediction.all_reduce import LinkCost
from alray.runtime.channel.all_reduce import AllReduce, make_all_reduce
from alray.runtime.channel.compression import make_compression
from alray.runtime.channel.gradient_layout import GradientLayout
from alray.runtime.channel.gradient_reducer import CommunicationThread, GradientReducer

SHARES = (5, 17, 42)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(sum(SHARES), 6, generator=generator, dtype=torch.float64), torch.arange(sum(SHARES)) % 3


def backward(net: nn.Module, s: torch.Tensor, labels: torch.Tensor) -> list[Any]:
    nn.functional.cross_entropy(net(s), labels).backward()
    return [parameter.grad for parameter in net.parameters()]


def reducer(
    layout: GradientLayout, group: Any, thread: Any, *, name: str = "ring", kind: str = "none", may_lack: bool = False
) -> GradientReducer:
    over = make_all_reduce(ALL_REDUCES.section(name), group, timeout_s=20.0)
    compression = make_compression(COMPRESSIONS.section(kind), layout)
    return GradientReducer(layout=layout, over=over, compression=compression, thread=thread, may_lack=may_lack)


class Doubled(AllReduce):
    """Adds what it was given to itself, and keeps the device that this was on."""

    name = "doubled"

    def __init__(self, group: Any) -> None:
        super().__init__(group, timeout_s=20.0)
        self.size = 2
        self.summed_on = ""

    @staticmethod
    def seconds(n: int, m: float, link: LinkCost) -> float:
        raise AssertionError("nothing is planned")

    def _sum(self, tensor: torch.Tensor) -> None:
        self.summed_on = tensor.device.type
        tensor.add_(tensor)

    def _gather(self, rows: torch.Tensor) -> None:
        raise AssertionError("nothing is gathered")


def test_a_tensor_on_a_gpu_is_summed_in_host_memory(on_ranks):
    """The tensor has no values, so no GPU is needed."""

    def work(rank: int, group: Any) -> Doubled:
        over = Doubled(group)
        with FakeTensorMode():
            over.sum(torch.empty(4, device="cuda"))
        return over

    (over,) = on_ranks(1, work)
    assert over.summed_on == "cpu"


@pytest.mark.parametrize("name", names_of("all_reduces"))
def test_unequal_shares_give_the_gradient_of_the_whole_batch(on_ranks, name):
    nets = [network() for _ in SHARES]  # here: seeding is not local to a thread
    s, labels = samples()
    whole = backward(network(), s, labels)

    def work(rank: int, group: Any) -> list[torch.Tensor]:
        begin = sum(SHARES[:rank])
        part = slice(begin, begin + SHARES[rank])
        mine = backward(nets[rank], s[part], labels[part])
        with CommunicationThread() as thread:
            averaging = reducer(GradientLayout.of(list(nets[rank].parameters())), group, thread, name=name)
            averaging.start(mine, SHARES[rank] / sum(SHARES))
            assert averaging.wait()[0] is mine[0]
        return [parameter.grad for parameter in nets[rank].parameters()]

    first, *others = on_ranks(len(SHARES), work)
    for averaged, wanted in zip(first, whole, strict=True):
        assert torch.allclose(averaged, wanted, rtol=0, atol=1e-15)
    assert all(torch.equal(one, other) for rank in others for one, other in zip(first, rank, strict=True))


def test_a_gradient_that_is_missing_counts_as_zeros(on_ranks):
    layout = GradientLayout((torch.Size([2]), torch.Size([2])))
    given = [[torch.tensor([4.0, 8.0]), None], [None, None]]

    def work(rank: int, group: Any) -> list[list[float]]:
        with CommunicationThread() as thread:
            averaging = reducer(layout, group, thread)
            averaging.start(given[rank], 0.5)
            return [gradient.tolist() for gradient in averaging.wait()]

    assert on_ranks(2, work) == [[[2.0, 4.0], [0.0, 0.0]]] * 2
    assert given[0][0].tolist() == [2.0, 4.0]


@pytest.mark.parametrize("kind", ["none", "bf16", "top_k"])
def test_a_gradient_that_no_rank_has_stays_missing_where_it_may_lack(on_ranks, kind):
    """But what a compression kept of earlier gradients is given out, so that nothing of them is lost."""
    layout = GradientLayout((torch.Size([2]), torch.Size([3]), torch.Size([4])))
    given = [[torch.tensor([4.0, 8.0]), None, None], [None, None, None]]

    def work(rank: int, group: Any) -> list[Any]:
        with CommunicationThread() as thread:
            averaging = reducer(layout, group, thread, kind=kind, may_lack=True)
            for _ in range(2):  # a second time: top_k sends one entry at a time
                averaging.start([None if each is None else each.clone() for each in given[rank]], 0.5)
                found = averaging.wait()
            averaging.start([None] * 3, 0.5)
            return [found[0].tolist(), *found[1:], averaging.wait()[0] is None]

    wanted = {"none": [[2.0, 4.0], None, None, True], "bf16": [[2.0, 4.0], None, None, True]}
    assert on_ranks(2, work) == [wanted.get(kind, [[0.0, 4.0], None, None, False])] * 2


def test_components_are_reduced_in_the_order_of_start_and_waited_for_in_any(on_ranks):
    layouts = [GradientLayout((torch.Size([1000 * (number + 1)]),)) for number in range(3)]

    def work(rank: int, group: Any) -> list[float]:
        with CommunicationThread() as thread:
            averaging = [reducer(layout, group, thread) for layout in layouts]
            found: list[float] = []
            for step in range(4):
                for number in (2, 1, 0):
                    gradient = torch.full(layouts[number].shapes[0], float(10 * step + number + rank))
                    averaging[number].start([gradient], 0.5)
                for number in (rank, 2, 1 - rank):  # the ranks wait in different orders
                    mean = averaging[number].wait()[0]
                    assert averaging[number].done and bool((mean == mean[0]).all())
                    found.append(float(mean[0]) - number)
        return found

    assert on_ranks(2, work) == [[10 * step + 0.5 for step in range(4) for _ in range(3)]] * 2


def test_bytes_and_seconds_are_counted(on_ranks):
    layout = GradientLayout((torch.Size([300]), torch.Size([100])))

    def work(rank: int, group: Any) -> tuple[int, bool]:
        with CommunicationThread() as thread:
            averaging = reducer(layout, group, thread)
            for _ in range(2):
                averaging.start([torch.ones(300), torch.ones(100)], 0.25)
                averaging.wait()
        return averaging.bytes_sent, averaging.communication_s > 0.0

    assert on_ranks(4, work) == [(2 * 2 * 3 * 400, True)] * 4


def test_a_peer_that_never_comes_is_told_by_wait(on_ranks):
    def work(rank: int, group: Any) -> str:
        if rank == 1:
            return ""
        layout = GradientLayout((torch.Size([4]),))
        with CommunicationThread() as thread:
            over = make_all_reduce(ALL_REDUCES.section("tree"), group, timeout_s=0.3)
            none = make_compression(COMPRESSIONS.section("none"), layout)
            averaging = GradientReducer(layout=layout, over=over, compression=none, thread=thread)
            averaging.start([torch.ones(4)], 0.5)
            with pytest.raises(ChannelError) as told:
                averaging.wait()
            return str(told.value)

    assert on_ranks(2, work)[0].startswith("edge rank 1 -> rank 0 of the tree all-reduce: the neighbour is ")
