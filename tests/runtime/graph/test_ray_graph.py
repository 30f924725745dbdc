"""What the driver says of a stage that died."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ray.exceptions import ActorDiedError, OutOfMemoryError

from alray.runtime.graph.processes import ActorLocation
from alray.runtime.graph.ray_graph import death_of

ASSIGNMENT: Any = SimpleNamespace(title="stage 0", plan=SimpleNamespace(schedule="streamed"))
LOCATION = ActorLocation("node", "n1", 7, 0.0, True)


def test_a_stage_that_was_killed() -> None:
    assert str(death_of(ASSIGNMENT, LOCATION, ActorDiedError())) == "stage 0 died (process 7 on n1)"


def test_a_stage_that_ray_ends_where_memory_runs_out() -> None:
    """Ray then raises an error that is none of a dead actor."""
    message = "1 worker(s) were killed due to the node running low on memory.\nand more"
    said = str(death_of(ASSIGNMENT, LOCATION, OutOfMemoryError(message)))
    assert said.startswith("stage 0 ran out of memory: Ray ended its process 7 on n1")
