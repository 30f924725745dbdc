"""What the driver learns of stages that do not answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorUnavailableError

from alray.runtime.graph import ray_graph
from alray.runtime.graph.ray_graph import RayGraph


def test_a_stage_that_cannot_be_reached_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Ray can never say that it died, as after the end of the head, the driver's deadline has to end the run."""
    clock_s = 0.0

    def unreachable(reference: object) -> Any:
        raise ActorUnavailableError("the node does not answer", None)

    def poll_later(seconds: float) -> None:
        nonlocal clock_s
        clock_s += 10

    monkeypatch.setattr(ray_graph, "time", SimpleNamespace(monotonic=lambda: clock_s, sleep=poll_later))
    monkeypatch.setattr(ray_graph, "ray", SimpleNamespace(wait=lambda asked, **_: (asked, []), get=unreachable))
    graph = RayGraph(lambda: None, run_token="token", note=print)  # type: ignore[arg-type, return-value]
    graph._actors = [SimpleNamespace(poll=SimpleNamespace(remote=object))]
    graph._assignments = [SimpleNamespace(stage=0, replica=0, start=SimpleNamespace(step=7))]  # type: ignore[list-item]
    silent = [graph.poll(0.0)[0].silent_s for _ in range(3)]
    assert silent == [0.0, 10.0, 20.0]
