"""The laws of all-reduces, among ranks that are threads. One enters by its row: the bytes that each rank sends."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from alray.config.sections.all_reduce import ALL_REDUCES
from alray.runtime.channel.all_reduce import make_all_reduce

SIZES = (0, 1, 4, 7, 1003)
"""Elements: fewer than ranks, and not divisible by them."""
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
COUNTED = 840
"""Elements that 1 to 5 ranks divide, so that every part of every algorithm is of equal size."""


def all_alike(n: int, m: int) -> list[float]:
    return [2 * m * (n - 1) / n] * n


def of_tree(n: int, m: int) -> list[float]:
    """To its parent, which is the rank without its lowest set bit, and back to each child."""
    children = [sum(child & (child - 1) == rank for child in range(1, n)) for rank in range(n)]
    return [m * ((rank > 0) + children[rank]) for rank in range(n)]


def of_halves(n: int, m: int) -> list[float]:
    """Of a power of two as a ring; each further rank is folded into the one before it, and back."""
    power = 1 << (n.bit_length() - 1)
    whole, folded = 2 * m * (power - 1) / power, 2 * (n - power)
    return [m if rank < folded and rank % 2 else whole + m * (rank < folded) for rank in range(n)]


ROWS: dict[str, Callable[[int, int], list[float]]] = {
    "backend": all_alike,
    "ring": all_alike,
    "star": lambda n, m: [(n - 1) * m] + [m] * (n - 1),
    "tree": of_tree,
    "halving_doubling": of_halves,
}
of_each = pytest.mark.parametrize("name", ROWS)
among = pytest.mark.parametrize("ranks", range(1, 6))


def drawn(rank: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    """What a rank has: values of very different magnitudes, or integers whose sum needs 64 bits."""
    generator = torch.Generator().manual_seed(1000 * size + rank)
    if dtype == torch.int64:
        return torch.randint(-(2**60), 2**60, (size,), generator=generator)
    spread = torch.randint(-6, 7, (size,), generator=generator)
    return (torch.randn(size, generator=generator, dtype=torch.float64) * 2.0**spread).to(dtype)


def made(name: str, group: Any) -> Any:
    return make_all_reduce(ALL_REDUCES.section(name), group, timeout_s=30.0)


def test_each_all_reduce_has_a_row() -> None:
    assert ROWS.keys() == ALL_REDUCES.sections.keys()


@among
@of_each
def test_sums_are_plain_ones_and_the_same_bits_on_every_rank(on_ranks: Any, name: str, ranks: int) -> None:
    """Integers are exact, floats are within n eps sum|x| of the true sum, which is that of Python's exact `fsum`."""
    cases = [(size, dtype) for size in SIZES for dtype in (torch.int64, *FLOATS)]

    def work(rank: int, group: Any) -> list[torch.Tensor]:
        sums = [drawn(rank, size, dtype) for size, dtype in cases]
        for each in sums:
            made(name, group).sum(each)
        return sums

    first, *others = on_ranks(ranks, work)
    for other in others:
        pairs = zip(first, other, strict=True)
        assert all(torch.equal(one.view(torch.uint8), two.view(torch.uint8)) for one, two in pairs)
    for (size, dtype), found in zip(cases, first, strict=True):
        addends = [drawn(rank, size, dtype) for rank in range(ranks)]
        if dtype == torch.int64:
            assert torch.equal(found, torch.stack(addends).sum(0))
            continue
        for value, *terms in zip(found.tolist(), *(each.tolist() for each in addends), strict=True):
            bound = ranks * torch.finfo(dtype).eps * math.fsum(map(abs, terms))
            assert abs(math.fsum([value, *(-term for term in terms)])) <= bound


@among
@of_each
def test_rows_are_gathered_in_the_order_of_the_ranks(on_ranks: Any, name: str, ranks: int) -> None:
    def work(rank: int, group: Any) -> list[torch.Tensor]:
        return [made(name, group).gather(drawn(rank, size, torch.float32)) for size in SIZES]

    for found in on_ranks(ranks, work):
        for size, rows in zip(SIZES, found, strict=True):
            assert torch.equal(rows, torch.stack([drawn(rank, size, torch.float32) for rank in range(ranks)]))


@among
@of_each
def test_bytes_are_those_of_the_algorithm(on_ranks: Any, name: str, ranks: int) -> None:
    def work(rank: int, group: Any) -> int:
        reduction = made(name, group)
        reduction.sum(torch.zeros(COUNTED))
        return int(reduction.bytes_sent)

    assert on_ranks(ranks, work) == ([0] if ranks == 1 else ROWS[name](ranks, 4 * COUNTED))
