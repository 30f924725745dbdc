"""Which kind of edge is between which stages, and how which replicas sum."""

from __future__ import annotations

import pytest

from alray.runtime.channel.edge_kind import DeviceLocation, EdgeKind, edge_kind, sum_kind


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        (DeviceLocation("a"), DeviceLocation("a"), EdgeKind.MEMORY),
        (DeviceLocation("a"), DeviceLocation("b"), EdgeKind.GLOO),
        (DeviceLocation("a", "0"), DeviceLocation("a", "1"), EdgeKind.NCCL),
        (DeviceLocation("a", "0"), DeviceLocation("b", "0"), EdgeKind.NCCL),
        (DeviceLocation("a", "0"), DeviceLocation("a", "0"), EdgeKind.MEMORY),  # NCCL refuses two processes on one GPU
        (DeviceLocation("a", "0"), DeviceLocation("a"), EdgeKind.MEMORY),
        (DeviceLocation("a", "0"), DeviceLocation("b"), EdgeKind.GLOO),
    ],
    ids=str,
)
def test_each_edge_has_a_kind_of_its_own(one: DeviceLocation, other: DeviceLocation, kind: EdgeKind) -> None:
    assert edge_kind(one, other) is kind and edge_kind(other, one) is kind


@pytest.mark.parametrize(
    ("locations", "all_reduce", "kind"),
    [
        ([DeviceLocation("a", "0"), DeviceLocation("a", "1"), DeviceLocation("b", "0")], "backend", EdgeKind.NCCL),
        ([DeviceLocation("a", "0"), DeviceLocation("a", "1")], "ring", EdgeKind.GLOO),
        ([DeviceLocation("a", "0"), DeviceLocation("a", "0")], "backend", EdgeKind.GLOO),
        ([DeviceLocation("a", "0"), DeviceLocation("a")], "backend", EdgeKind.GLOO),
        ([DeviceLocation("a"), DeviceLocation("b")], "backend", EdgeKind.GLOO),
    ],
    ids=str,
)
def test_replicas_with_a_gpu_each_sum_over_nccl(
    locations: list[DeviceLocation], all_reduce: str, kind: EdgeKind
) -> None:
    assert sum_kind(locations, all_reduce) is kind
