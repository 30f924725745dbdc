"""A spec as a dict that trains in a tenth of a second, and a run of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import alray

_COST = {"forward_s": 1e-3, "backward_s": 1e-3, "update_s": 1e-3}
TINY: dict[str, Any] = {
    "name": "tiny",
    "data": {"source": "synthetic", "shape": (1, 4, 4), "classes": 3, "samples": 100, "batch_size": 10},
    "model": {"components": [{"block": "vgg", "channels": [2]}] * 3},
    "method": {"kind": "associated_learning", "label_dim": 4},
    "pipeline": {"stages": 2, "costs": [_COST] * 3},
    "run": {"epochs": 2},
}
"""Costs are given: to measure them takes longer than the run."""


@pytest.fixture(scope="module", autouse=True)
def networks_are_counted_once(counted_once: None) -> None:
    """In all of these tests."""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The spec, in a folder of the test that is the current one."""
    monkeypatch.chdir(tmp_path)
    return TINY


@pytest.fixture(scope="session")
def ended(tmp_path_factory: pytest.TempPathFactory) -> alray.Run:
    """A run of the spec that has finished. No test may change it."""
    return alray.run(TINY, inline=True, output=tmp_path_factory.mktemp("ended") / "run", progress=False)
