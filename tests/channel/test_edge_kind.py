"""Which kind of edge is between which stages."""

from __future__ import annotations

import pytest

from alray.channel.edge_kind import EdgeKind, Seat, edge_kind


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        (Seat("a"), Seat("a"), EdgeKind.MEMORY),
        (Seat("a"), Seat("b"), EdgeKind.GLOO),
        (Seat("a", "0"), Seat("a", "0"), EdgeKind.MEMORY),
        (Seat("a", "0"), Seat("a"), EdgeKind.MEMORY),
        (Seat("a", "0"), Seat("b"), EdgeKind.GLOO),
    ],
    ids=str,
)
def test_each_edge_has_a_kind_of_its_own(one: Seat, other: Seat, kind: EdgeKind) -> None:
    assert edge_kind(one, other) is kind and edge_kind(other, one) is kind
