"""What the driver says of a stage that died, and of the processes of its stages."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, OutOfMemoryError

from alray import __version__
from alray.core.errors import PlanError
from alray.runtime.graph import actor
from alray.runtime.graph.processes import ActorLocation, environment_of
from alray.runtime.graph.ray_graph import death_of

ASSIGNMENT: Any = SimpleNamespace(title="stage 0", plan=SimpleNamespace(schedule="streamed"))
LOCATION = ActorLocation("node", "n1", 7, 0.0, True)


@pytest.mark.parametrize(
    ("device", "given", "gpu"),
    [
        ("cuda", "1", "1"),
        ("cuda", "GPU-2bc5", "GPU-2bc5"),
        ("cuda", "MIG-87dc", None),
        ("cuda", "MIG-GPU-2bc5/1/0", None),
        ("xpu", "1", None),
    ],
)
def test_the_gpu_that_nccl_knows(monkeypatch: pytest.MonkeyPatch, device: str, given: str, gpu: str | None) -> None:
    """Two slices of one card have two names, and NCCL takes them for one GPU."""
    monkeypatch.setattr(actor, "given_gpus", lambda: [given])
    assignment: Any = SimpleNamespace(device_kind=device)
    assert actor.gpu_for_nccl(assignment) == gpu


def test_a_stage_that_was_killed() -> None:
    assert str(death_of(ASSIGNMENT, LOCATION, ActorDiedError())) == "stage 0 died (process 7 on n1)"


def test_a_stage_that_ray_ends_where_memory_runs_out() -> None:
    """Ray then raises an error that is none of a dead actor."""
    message = "1 worker(s) were killed due to the node running low on memory.\nand more"
    said = str(death_of(ASSIGNMENT, LOCATION, OutOfMemoryError(message)))
    assert said.startswith("stage 0 ran out of memory: Ray ended its process 7 on n1")


def test_a_run_knows_what_its_stages_compute_on() -> None:
    """Not what the driver is on: the head of a cluster may have no GPU."""

    def at(device: str, torch: str = "2.1", alray: str = __version__) -> ActorLocation:
        return replace(LOCATION, environment={"device": device, "torch": torch, "alray": alray, "cores": 8})

    notes: list[str] = []
    assert environment_of([at("H100"), at("H100")], notes.append) == {
        "device": "H100",
        "torch": "2.1",
        "alray": __version__,
    }
    assert environment_of([LOCATION], notes.append) == {}, "it has no such device, as its start tells"
    assert environment_of([at("H100"), at("A100")], notes.append)["device"] == "A100 and H100"
    assert notes == []
    assert environment_of([at("H100"), at("H100", torch="2.2")], notes.append)["torch"] == "2.1 and 2.2"
    assert notes == ["the stages have different versions of torch: 2.1 and 2.2"]
    with pytest.raises(PlanError, match=r"a stage on n1 has alray 0\.1, and this process alray "):
        environment_of([at("H100"), at("H100", alray="0.1")], notes.append)
