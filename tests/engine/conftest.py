"""Runs of whole specs, in this process and on Ray, for tests of what must be the same everywhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from alray.orchestrate import Finished, Options, resume_run, run_spec
from alray.runtime.observer import Observer

from .process_graph import in_processes, stage_server

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

TINY = """
name: tiny
seed: 3
data: {source: synthetic, shape: [2, 8, 8], classes: 4, samples: 150, batch_size: 16, validation_fraction: 0.2}
model:
  components:
    - {block: vgg, channels: [6]}
    - {block: vgg, channels: [8], pool: true}
    - {block: "python:own_blocks.Permuted", width: 6, pool: 4}
    - {block: "python:own_blocks.Dropped", width: 7}
method: {kind: associated_learning, label_dim: 12}
optimizer: {kind: adam, lr: 3e-3}
pipeline: {costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost, *cost, *cost]}
run: {epochs: 3, evaluate_every: 4 steps, checkpoint: {every: 5 steps, keep: 50}}
"""
"""Seven mini-batches an epoch; evaluations and checkpoints fall inside and across epochs.

Costs are given: measuring them would take longer than the run, and has other tests.
"""

MORE = "run.epochs=20"
LONG = (MORE, "model.components.2.sleep_s=0.02")
"""The same in 3 s at least: something can happen in the middle, on any machine."""

OWN_BLOCKS = '''
"""Blocks that would give other bits in another partition, were the boundary not careful."""

import time

import torch
from torch import nn
from torch.nn import functional


class Permuted(nn.Module):
    """Gives 1 x 1 maps in channels-last strides, which `contiguous()` does not undo; slowly where asked to."""

    def __init__(self, input, width, pool, sleep_s=0.0):
        super().__init__()
        self.conv = nn.Conv2d(input[0], width, pool)
        self.sleep_s = sleep_s

    def forward(self, s, mask=None):
        time.sleep(self.sleep_s)
        return self.conv(s).clone(memory_format=torch.channels_last)


class Dropped(nn.Module):
    """Writes on its input first, and draws twice: by a layer, and by a function no scan for layers would find."""

    def __init__(self, input, width):
        super().__init__()
        self.dropout = nn.Dropout2d(0.3)
        self.conv = nn.Conv2d(input[0], width, 1)

    def forward(self, s, mask=None):
        s = s.mul_(1.5)
        return functional.dropout(torch.relu(self.conv(self.dropout(s))), 0.2, training=self.training)
'''


@dataclass
class Watching(Observer):
    """An observer that keeps what it hears and may act on it."""

    notes: list[str] = field(default_factory=list)
    records: list[Any] = field(default_factory=list)
    plans: list[Any] = field(default_factory=list)
    on_statuses: Callable[[Sequence[Any]], None] = lambda statuses: None

    def planned(self, plan: Any) -> None:
        self.plans.append(plan)

    def record(self, record: Any) -> None:
        self.records.append(record)

    def statuses(self, statuses: Sequence[Any]) -> None:
        self.on_statuses(statuses)

    def note(self, message: str) -> None:
        self.notes.append(message)


@dataclass
class Asked:
    """How often the user asked to stop."""

    count: int = 0
    reason: str = "on request"
    error: Any = None


@dataclass
class Workshop:
    """A folder with a spec in it, and ways to run it."""

    folder: Path
    content: str = TINY

    def __post_init__(self) -> None:
        (self.folder / "own_blocks.py").write_text(OWN_BLOCKS)
        self.spec = self.folder / "tiny.yaml"
        self.spec.write_text(self.content)

    def run(
        self,
        *overrides: str,
        inline: bool = True,
        name: str = "run",
        watching: Watching | None = None,
        asked: Asked | None = None,
    ) -> Finished:
        return run_spec(
            self.spec,
            list(overrides),
            Options(inline=inline, run_dir=self.folder / name, pages=False),
            watching or Watching(),
            asked or Asked(),
        )

    def resume(
        self,
        *overrides: str,
        inline: bool = True,
        name: str = "run",
        watching: Watching | None = None,
        asked: Asked | None = None,
        allow_change: bool = False,
        allow_code: bool = False,
    ) -> Finished:
        return resume_run(
            self.folder / name,
            list(overrides),
            Options(inline=inline, pages=False, allow_code=allow_code),
            watching or Watching(),
            asked or Asked(),
            allow_change=allow_change,
        )


@pytest.fixture(scope="module", autouse=True)
def networks_are_counted_once(counted_once: None) -> None:
    """In all of these tests."""


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The tiny spec, sequential, on one stage, in this process: what every other way of running it must equal."""
    return Workshop(tmp_path_factory.mktemp("reference")).run("pipeline.schedule=sequential", "pipeline.stages=1")


@pytest.fixture(scope="session")
def longer_reference(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The same over more epochs."""
    return Workshop(tmp_path_factory.mktemp("longer")).run(MORE, "pipeline.stages=1")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """One Ray of four processors for all tests, in separate processes; connected to by nobody."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
    yield cluster
    cluster.shutdown()


@pytest.fixture
def local_ray(cluster: Cluster) -> Iterator[None]:
    """A connection to that Ray: alray uses a Ray that is there already."""
    import ray

    ray.init(address=cluster.address, log_to_driver=False, namespace="alray")
    yield
    ray.shutdown()


@pytest.fixture
def own_ray() -> None:
    """Marks a test whose run starts a Ray and ends it."""


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The socket of one stage server for all tests, of all workers."""
    folder = tmp_path_factory.getbasetemp()
    with stage_server(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) as socket:
        yield socket


@pytest.fixture
def processes(server: str) -> Iterator[None]:
    """Runs with `inline=False` are run in processes without Ray."""
    with in_processes(server):
        yield
