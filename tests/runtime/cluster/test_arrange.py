"""Which node each stage goes to."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from alray.runtime.cluster import placement
from alray.runtime.cluster.arrange import arrange
from alray.runtime.cluster.nodes import ClusterNode

ONE = {"CPU": 1.0}


@pytest.mark.parametrize(
    ("stages", "replicas", "cpus", "expected"),
    [
        (4, 1, {"a": 4, "b": 4}, "bbbb"),  # one node before two, and the driver's before another
        (4, 1, {"a": 3, "b": 2}, "aaab"),  # few cuts, neighbours together
        (4, 1, {"a": 2, "b": 1, "c": 1}, "aabc"),
        (2, 2, {"a": 4, "b": 4}, "bbaa"),  # the replicas of a stage apart
        (2, 2, {"a": 4, "b": 1}, "aaaa"),  # but not a replica in two
        (2, 3, {"a": 3, "b": 2, "c": 1}, "bbaaca"),
        (1, 3, {"a": 2, "b": 2}, "bab"),
        (2, 1, {"a": 8, "b": 0, "c": 2}, "cc"),  # the fullest node that holds it leaves the others whole
        (3, 1, {"a": 1, "b": 1}, None),
    ],
)
def test_stages_stay_together_and_replicas_apart(
    stages: int, replicas: int, cpus: dict[str, float], expected: str | None
) -> None:
    free = {node: {"CPU": float(count)} for node, count in cpus.items()}
    placed = arrange([ONE] * (stages * replicas), stages, free, here="b")
    assert placed == (None if expected is None else tuple(expected))


def test_shares_of_gpus_go_where_each_has_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs hold two stages of 0.6, though their sum would hold three. Ray never found a place for the third."""
    has = {"CPU": 8.0, "GPU": 2.0}
    nodes = [ClusterNode(name, name, name, has) for name in "ab"]
    monkeypatch.setattr(placement, "living_nodes", lambda labels: nodes)
    monkeypatch.setattr(placement.ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "a"))

    def chosen(*free: float) -> str:
        left = {node.id: has | {"GPU": gpus} for node, gpus in zip(nodes, free, strict=True)}
        monkeypatch.setattr(placement, "available_resources_per_node", lambda: left)
        found = placement._selectors([ONE | {"GPU": 0.6}] * 3, 3, {})
        return "" if found is None else "".join(name for each in found for name in each.values())

    assert chosen(2.0, 2.0) == "aab"
    assert chosen(1.0, 2.0) == "bba"
    assert chosen(1.0, 1.0) == ""
    assert chosen(0.8, 2.0) == ""  # two stages of 0.6 have the GPUs of a


def test_every_kind_of_resource_counts() -> None:
    free = {"a": {"CPU": 8.0}, "b": {"CPU": 1.0, "GPU": 1.0}}
    assert arrange([ONE, ONE | {"GPU": 1.0}], 2, free, here="a") == ("a", "b")
    assert arrange([ONE | {"memory": 1e9}], 1, free, here="a") is None
