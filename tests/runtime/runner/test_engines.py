"""What holds an engine's resources lets go of them, whatever state they are in."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

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
