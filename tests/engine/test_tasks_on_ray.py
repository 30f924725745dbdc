"""Other tasks than classification on Ray, by Associated Learning."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Workshop
from .test_same_bits import same
from .test_tasks import METHODS, SPEC

pytestmark = pytest.mark.ray


@pytest.mark.full  # tests/engine/test_tasks.py has both between plain processes
@pytest.mark.parametrize("task", ["regression", "multi_label"])
def test_two_stages_on_ray_and_a_resume_on_one(tmp_path: Path, local_ray: None, task: str) -> None:
    workshop = Workshop(tmp_path, SPEC)
    keys = (f"task.kind={task}", *METHODS["al"])
    whole = workshop.run(*keys, "pipeline.stages=1", name="whole")
    workshop.run(*keys, "pipeline.stages=2", "run.epochs=1", inline=False)
    same(workshop.resume("run.epochs=2", "pipeline.stages=1"), whole)
