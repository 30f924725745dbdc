"""The classes of an installed package on Ray, whose workers find the package where this process does."""

# ruff: noqa: F401, F811 - fixtures of the other file are used here too

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Workshop
from .test_packages import CLASSES, NAMES, TASK, installed, overrides, own, there
from .test_same_bits import same

pytestmark = pytest.mark.ray


def test_two_stages_on_ray(own: Workshop, there: Path, local_ray: None) -> None:
    """With a worker that loads samples."""
    one = own.run(*overrides(CLASSES), "pipeline.stages=1", "run.epochs=1", name="one")
    on_ray = ("pipeline.partition=[2,2]", "run.epochs=1", "data.workers=1")
    same(own.run(*overrides(NAMES), *on_ray, inline=False, name="ray"), one)
    task = own.run(*TASK, "pipeline.stages=1", "run.epochs=1", name="task")
    same(own.run(*TASK, *on_ray, inline=False, name="task-on-ray"), task)
