"""Stages that do not start on Ray."""

from __future__ import annotations

import time
from typing import Any

import pytest
import ray

from alray.core.errors import StageError
from alray.runtime.graph import ray_graph
from alray.runtime.graph.processes import StageProcesses
from alray.runtime.graph.ray_graph import RayGraph


def test_stages_that_never_start_end_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where somebody has stopped the process of one while it loads: the driver starts them again."""

    def wait(references: list[str], **named: Any) -> tuple[list[str], list[str]]:
        time.sleep(0.05)
        return [], references

    monkeypatch.setattr(ray, "wait", wait)
    monkeypatch.setattr(ray_graph, "_STARTING_S", 0.2)
    processes = StageProcesses(None, (), ("loaded",))  # type: ignore[arg-type]
    graph = RayGraph(lambda: processes, run_token="", note=print)
    with pytest.raises(StageError, match="have not started within"):
        graph.start([])
