"""What Ray is asked for where the speed of a device is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest

from alray.graph import placement
from alray.graph.placement import Placement
from alray.probe.device_speed import SpeedTrial


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
    trial = SpeedTrial(**{field.name: None for field in fields(SpeedTrial)})  # type: ignore[arg-type]
    assert placed._begin(0, trial, 0) == "result"
    assert (asked["max_calls"], asked["num_gpus"], asked["max_retries"]) == (1, 1.0, 0)
