"""Tests of what runs on a GPU.

`make gpu` runs them where there is one. `make simulated`, of which `make test` has a part, runs those that can on an
accelerator made of this processor (tests/simulated), in a process of its own. Elsewhere they are skipped. Where there
are few GPUs, they stand for more in tests of stages in separate processes, and one stands for four through Ray
(tests/gpu/one_gpu.py).
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from alray.core import accelerator

from ..engine.conftest import Workshop, own_ray, workshop  # noqa: F401 - fixtures
from ..runtime.channel.conftest import on_ranks  # noqa: F401 - a fixture
from .shown import filled_in, rows_of_page

SIMULATED = os.environ.get("ALRAY_TEST_DEVICE") == "simulated"
if SIMULATED:
    from ..simulated import MACHINE, install

    install(count=4)
REAL = not SIMULATED and accelerator.available("cuda") is not None
ONE_GPU = REAL and accelerator.count() == 1  # it stands for four, by a trick of NCCL's
if REAL:
    os.environ["ALRAY_TEST_DEVICE"] = "real GPUs"  # the processes of stages read it
DEVICE = f"resources.device={accelerator.kind()}"
ON_GPU = (DEVICE, "resources.per_stage={CPU: 1, GPU: 1}")
HALF_A_GPU = (DEVICE, "resources.per_stage={CPU: 1, GPU: 0.5}")
GPU = torch.device(accelerator.kind(), 0)


def needs_gpus(count: int) -> pytest.MarkDecorator:
    there = 0 if accelerator.available() is None else accelerator.count()
    return pytest.mark.skipif(there < count, reason=f"needs {count} GPUs, and this machine has {there}")


def needs_stages_on_gpus(count: int) -> pytest.MarkDecorator:
    """Stages in separate processes, each on another GPU. One real GPU stands for several."""
    return needs_gpus(1 if ONE_GPU else count)


needs_two_gpus = needs_gpus(2)
needs_a_real_gpu = pytest.mark.skipif(SIMULATED, reason="only a real GPU shows this")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if accelerator.available() is not None:
        return
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="needs a GPU: `make gpu`, or `make simulated`"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The table of shown.md, with what this run shows."""
    if accelerator.available() is None:
        return
    how = {"passed": "passed", "failed": "failed", "error": "failed", "skipped": "skipped"}
    outcomes = {each.nodeid: how[state] for state in how for each in terminalreporter.stats.get(state, ())}
    terminalreporter.write_line(f"| | {accelerator.name(GPU)} |")
    for what, came_to in filled_in(outcomes, rows_of_page(simulated=SIMULATED), one_gpu=ONE_GPU).items():
        terminalreporter.write_line(f"| {what} | {came_to} |")


@pytest.fixture(scope="module", autouse=True)
def networks_are_counted_once(request: pytest.FixtureRequest) -> None:
    """Memory is counted by torch's fake tensors, which end a process with a device that is written in Python."""
    if SIMULATED:
        request.getfixturevalue("counted_once")


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    """A test on the simulated device ends with nothing that a GPU would punish, in whatever thread it came up."""
    if not SIMULATED:
        yield
        return
    MACHINE.faults.clear()
    yield
    gc.collect()
    found = list(MACHINE.faults)
    assert not found, found


def host_waits() -> int:
    """How often the host has waited for a device so far; 0 where nobody counts."""
    return MACHINE.trips if SIMULATED else 0


@pytest.fixture(scope="session")
def gpu_reference(tmp_path_factory: pytest.TempPathFactory):
    """The tiny spec on a GPU, sequential, on one stage: what every other way of running it there must equal."""
    folder = tmp_path_factory.mktemp("gpu_reference")
    return Workshop(folder).run(*ON_GPU, "pipeline.schedule=sequential", "pipeline.stages=1")
