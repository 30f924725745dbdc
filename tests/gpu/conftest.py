"""Tests that need a GPU. Where there is none they are skipped: `make gpu` runs them where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ..engine.conftest import Workshop, own_ray, workshop  # noqa: F401 - fixtures

ON_GPU = ("resources.device=cuda", "resources.per_stage={CPU: 1, GPU: 1}")
HALF_A_GPU = ("resources.device=cuda", "resources.per_stage={CPU: 1, GPU: 0.5}")


def needs_gpus(count: int) -> pytest.MarkDecorator:
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return pytest.mark.skipif(there < count, reason=f"needs {count} GPUs, and this machine has {there}")


needs_two_gpus = needs_gpus(2)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="needs a GPU, and torch sees none on this machine"))


@pytest.fixture(scope="session")
def gpu_reference(tmp_path_factory: pytest.TempPathFactory):
    """The tiny spec on a GPU, sequential, on one stage: what every other way of running it there must equal."""
    folder = tmp_path_factory.mktemp("gpu_reference")
    return Workshop(folder).run(*ON_GPU, "pipeline.schedule=sequential", "pipeline.stages=1")
