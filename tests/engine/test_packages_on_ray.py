"""The classes of an installed package on Ray, whose processes have the environment of this one."""

# ruff: noqa: F401, F811 - fixtures of the other file are used here too

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Workshop
from .test_packages import CLASSES, NAMES, installed, overrides, own, there
from .test_same_bits import same

pytestmark = pytest.mark.own_ray


@pytest.mark.full  # tests/engine/test_packages.py has them in one process
def test_two_stages_on_ray(own: Workshop, there: Path, own_ray: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a worker that loads samples."""
    monkeypatch.setenv("PYTHONPATH", str(there))  # in place of an installation where Python looks by itself
    one = own.run(*overrides(CLASSES), "pipeline.stages=1", "run.epochs=1", name="one")
    on_ray = ("pipeline.partition=[2,2]", "run.epochs=1", "data.workers=1")
    same(own.run(*overrides(NAMES), *on_ray, inline=False, name="ray"), one)
