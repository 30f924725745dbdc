"""Which node each stage goes to."""

from __future__ import annotations

import pytest

from alray.runtime.cluster.arrange import arrange

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


def test_every_kind_of_resource_counts() -> None:
    free = {"a": {"CPU": 8.0}, "b": {"CPU": 1.0, "GPU": 1.0}}
    assert arrange([ONE, ONE | {"GPU": 1.0}], 2, free, here="a") == ("a", "b")
    assert arrange([ONE | {"memory": 1e9}], 1, free, here="a") is None
