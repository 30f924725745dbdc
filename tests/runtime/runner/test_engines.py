"""What holds an engine's resources lets go of them, whatever state they are in."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from alray.core import accelerator
from alray.runtime.runner import engines
from alray.runtime.runner.engines import RayEngine


def test_the_end_of_a_command_does_not_wait_for_ever_for_a_ray_that_does_not_start(
    load_small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after Ctrl-C within an import, which can leave a lock that the thread waits for."""
    monkeypatch.setattr(engines, "_STARTING_S", 0.05)
    engine = RayEngine(load_small("pipeline.stages=2").spec, print)
    engine._connected = Future()
    engine.close()
    assert not engine._connected.done()


COSTS = "[&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost]"


@pytest.mark.parametrize(
    ("nodes", "overrides", "measures"),
    [
        ("a", (), False),
        ("b", (), True),  # the labels are those of another node alone
        ("ab", (), True),
        ("a", ("resources.per_stage=[{CPU: 1}, {CPU: 2}]",), True),
        ("a", ("resources.per_stage={CPU: 1, GPU: 1}",), True),  # the command has no GPU
        ("ab", (f"pipeline.costs={COSTS}",), True),  # the memory of their machines
        ("ab", (f"pipeline.costs={COSTS}", "resources.per_stage={CPU: 1, GPU: 1}"), False),
    ],
)
def test_which_devices_are_measured(
    load_small: Any, monkeypatch: pytest.MonkeyPatch, nodes: str, overrides: tuple[str, ...], measures: bool
) -> None:
    monkeypatch.setattr(engines, "living_nodes", lambda labels: [SimpleNamespace(id=node) for node in nodes])
    monkeypatch.setattr("ray.get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "a"))
    monkeypatch.setattr(accelerator, "available", lambda device: None)
    assert RayEngine(load_small("pipeline.stages=2", *overrides).spec, print).measures_devices() == measures


@pytest.mark.parametrize(
    ("resources", "left", "room"),
    [
        ("{CPU: 1}", 8, (2, 3)),
        ("{CPU: 1}", 3, (2, 1)),  # (2, 2) is not among those that the run may go on with
        ("{CPU: 1}", 0, None),
        ("[{CPU: 1}, {CPU: 1}]", 0, (2, 3)),  # it waits for the nodes of each stage
    ],
)
def test_a_run_goes_on_with_the_first_layout_that_has_room(
    load_small: Any, monkeypatch: pytest.MonkeyPatch, resources: str, left: int, room: tuple[int, int] | None
) -> None:
    monkeypatch.setattr(engines, "has_room", lambda bundles, labels: len(bundles) <= left)
    monkeypatch.setattr(engines, "living_nodes", lambda: [SimpleNamespace(id="here")])
    engine = RayEngine(load_small("pipeline.stages=2", f"resources.per_stage={resources}").spec, print)
    assert engine.room([(2, 3), (2, 1), (1, 1)]) == room
