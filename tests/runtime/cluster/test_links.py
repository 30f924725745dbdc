"""Links between nodes, as several stages of a node share them."""

from __future__ import annotations

import pytest

from alray.planning.prediction.costs import Link
from alray.runtime.cluster import links
from alray.runtime.cluster.links import links_of


def test_stages_of_a_node_share_its_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four stages on two nodes in turns: each card has two stages that send, to both sides."""
    line = Link(latency_s=1e-3, up_s_per_byte=1e-9, down_s_per_byte=1e-9)
    monkeypatch.setattr(
        links, "measure_links", lambda pairs, note: {pair: line for pair in pairs if len(set(pair)) > 1}
    )
    found, replicas = links_of(["a", "b", "a", "b"], 4, print, ring=False, down=True)
    assert [link.up_s_per_byte for link in found[:3]] == [2e-9] * 3 and found[3] is None and replicas is None
    # Two replicas, a node each: nothing but averages goes over the network, those of both stages.
    found, replica_link = links_of(["a", "a", "b", "b"], 2, print, ring=False, down=True)
    assert found == () and replica_link.up_s_per_byte == 2e-9
    # One stage on a node of its own: it sends alone, and two stages send to it.
    found, _ = links_of(["a", "b", "a"], 3, print, ring=False, down=True)
    assert [(link.up_s_per_byte, link.down_s_per_byte) for link in found[:2]] == [(2e-9, 1e-9), (1e-9, 2e-9)]
    # With local losses nothing goes down: each node has one stage that sends.
    found, _ = links_of(["a", "a", "b", "b", "c", "c"], 6, print, ring=False, down=False)
    assert [link.up_s_per_byte for link in found[:5] if link is not None] == [1e-9, 1e-9]
