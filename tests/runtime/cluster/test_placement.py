"""What Ray is asked for where the speed of a device is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest

from alray.core.errors import StageError
from alray.runtime.cluster import placement, room
from alray.runtime.cluster.placement import Placement
from alray.runtime.cluster.room import wait_for_room
from alray.runtime.probe.device_speed import SpeedTest


def test_a_full_cluster_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may use it for hours."""
    notes: list[str] = []
    clock_s = 0.0

    def look() -> bool:
        nonlocal clock_s
        clock_s += 60
        return clock_s > 7200

    monkeypatch.setattr(room, "time", SimpleNamespace(monotonic=lambda: clock_s))
    monkeypatch.setattr(room, "has_room", lambda bundles, labels: True)
    monkeypatch.setattr(room, "is_idle", lambda bundles: False)
    wait_for_room(look, [{"CPU": 1.0}] * 2, None, notes.append, whose="stages")
    assert len(notes) == 1 and "2 stages" in notes[0]
    monkeypatch.setattr(room, "is_idle", lambda bundles: True)
    with pytest.raises(StageError, match="no room for 1 stages, though nobody else uses it"):
        wait_for_room(lambda: bool(look()) and False, [{"CPU": 1.0}], None, notes.append, whose="stages")
    monkeypatch.setattr(room, "has_room", lambda bundles, labels: False)
    with pytest.raises(StageError, match="the cluster has lost nodes: 1 stages have no room on it"):
        wait_for_room(lambda: False, [{"CPU": 1.0}], None, notes.append, whose="stages")


def test_the_process_of_a_speed_trial_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would keep its memory of the GPU, which a stage needs next."""
    asked: dict[str, Any] = {}

    def remote(**options: Any) -> Callable[..., Any]:
        asked.update(options)
        begun = SimpleNamespace(remote=lambda trial: "result")
        return lambda function: SimpleNamespace(options=lambda **later: asked.update(later) or begun)

    monkeypatch.setattr(placement.ray, "remote", remote)
    monkeypatch.setattr(placement, "PlacementGroupSchedulingStrategy", lambda *arguments, **named: None)
    placed = Placement(({"CPU": 1.0, "GPU": 1.0},), group=None, nodes=("node",))  # type: ignore[arg-type]
    trial = SpeedTest(**{field.name: None for field in fields(SpeedTest)})  # type: ignore[arg-type]
    assert placed._begin(0, trial, 0) == "result"
    assert (asked["max_calls"], asked["num_gpus"], asked["max_retries"]) == (1, 1.0, 0)


@pytest.mark.parametrize(
    ("nodes", "stages", "parts"),
    [
        ("ab", 2, (1600, 6400)),
        ("abbb", 2, (1600, 2133)),  # two replicas: a has stage 0 of one, and b the rest
        ("bc", 2, (3200, 3200)),  # two nodes of one machine
        ("bb", 2, (3200, 3200)),
    ],
)
def test_stages_on_processors_share_the_memory_of_their_machine(
    monkeypatch: pytest.MonkeyPatch, nodes: str, stages: int, parts: tuple[int, ...]
) -> None:
    hosts = {"a": "small", "b": "large", "c": "large"}
    alive = [SimpleNamespace(id=node, host=host) for node, host in hosts.items()]
    monkeypatch.setattr(placement, "living_nodes", lambda: alive)
    monkeypatch.setattr(placement, "machine_memory_bytes", lambda: 1600)
    monkeypatch.setattr(placement, "answers", lambda question, asked: ((node, 6400) for node in asked if node != "a"))
    context = SimpleNamespace(get_node_id=lambda: "a")
    monkeypatch.setattr(placement.ray, "get_runtime_context", lambda: context)
    placed = Placement(({"CPU": 1.0},) * len(nodes), group=None, nodes=tuple(nodes))  # type: ignore[arg-type]
    assert placed.machine_parts(stages) == parts


def test_nothing_is_given_back_to_a_ray_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would wait for its GCS for a minute, and then end this process."""
    removed: list[object] = []
    monkeypatch.setattr(placement, "remove_placement_group", removed.append)
    monkeypatch.setattr(placement, "is_lost", lambda: True)
    group = object()
    taken = placement.Placement(({"CPU": 1},), group, ("a",))  # type: ignore[arg-type]
    taken.release()
    assert removed == []
    monkeypatch.setattr(placement, "is_lost", lambda: False)
    taken.release()
    assert removed == [group]
