"""Which kind of edge is between which stages, and how which replicas sum."""

from __future__ import annotations

import pytest

from alray.runtime.channel.edge_kind import EdgeKind, Seat, edge_kind, sum_kind


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        (Seat("a"), Seat("a"), EdgeKind.MEMORY),
        (Seat("a"), Seat("b"), EdgeKind.GLOO),
        (Seat("a", "0"), Seat("a", "1"), EdgeKind.NCCL),
        (Seat("a", "0"), Seat("b", "0"), EdgeKind.NCCL),
        (Seat("a", "0"), Seat("a", "0"), EdgeKind.MEMORY),  # NCCL refuses two processes on one GPU
        (Seat("a", "0"), Seat("a"), EdgeKind.MEMORY),
        (Seat("a", "0"), Seat("b"), EdgeKind.GLOO),
    ],
    ids=str,
)
def test_each_edge_has_a_kind_of_its_own(one: Seat, other: Seat, kind: EdgeKind) -> None:
    assert edge_kind(one, other) is kind and edge_kind(other, one) is kind


@pytest.mark.parametrize(
    ("seats", "all_reduce", "kind"),
    [
        ([Seat("a", "0"), Seat("a", "1"), Seat("b", "0")], "backend", EdgeKind.NCCL),
        ([Seat("a", "0"), Seat("a", "1")], "ring", EdgeKind.GLOO),
        ([Seat("a", "0"), Seat("a", "0")], "backend", EdgeKind.GLOO),
        ([Seat("a", "0"), Seat("a")], "backend", EdgeKind.GLOO),
        ([Seat("a"), Seat("b")], "backend", EdgeKind.GLOO),
    ],
    ids=str,
)
def test_replicas_with_a_gpu_each_sum_over_nccl(seats: list[Seat], all_reduce: str, kind: EdgeKind) -> None:
    assert sum_kind(seats, all_reduce) is kind
