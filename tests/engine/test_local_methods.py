"""Methods with local losses stream, resume, are evaluated at every route and exported, in the same bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from alray.config.sections.method import METHODS as SECTIONS
from alray.inference.export import export_route
from alray.inference.exported import ExportedRoute
from alray.inference.network import TrainedNetwork
from alray.inference.requests import evaluate
from alray.orchestrate import Finished

from ..pairwise import first_alone
from .conftest import Workshop
from .test_same_bits import same

pytestmark = pytest.mark.long

METHODS = {
    "decoupled_greedy": "head: {pool: 2, hidden: 8}, label_smoothing: 0.1",
    "mono_forward": "pool: 2",
    "local_error_signals": "beta: 0.9",
    "channel_goodness": "",
    "decoupled_information": "projection_dim: 6",
    "forward_forward": "",
    "noprop": "hidden: 6",
    "auglocal": "depth: 2",
    "forward_forward by activities": "loss: symba, alpha: 0.01, prediction: activities",
    "supervised_contrastive": "projection_dim: 6, debiased: 0.25",
}
"""The further keys of each method."""
SOME = first_alone(
    ["forward_forward", "noprop", *(kind for kind in METHODS if kind not in ("forward_forward", "noprop"))], first=2
)
"""The two whose messages are unlike those of all others come first."""
WIDTHS = ("model.components.0.channels=[8]", "model.components.2.width=8", "model.components.3.width=8")
"""Each of the four classes has a group of channels."""
LAYOUTS = [
    ([4], "streamed", 4),
    ([1, 3], "streamed", 1),
    ([3, 1], "overlapped", 4),
    ([2, 2], "parallel_backward", 2),
    ([1, 2, 1], "sequential", 2),
    ([1, 1, 1, 1], "streamed", 7),
]
"""Partition, schedule, and mini-batches that may wait on an edge."""


def by(kind: str) -> list[str]:
    return [f"method={{kind: {kind.split()[0]}, {METHODS[kind]}}}", "data.last_batch=keep", *WIDTHS]


@pytest.fixture(scope="module")
def reference_by(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Finished]:
    """A run by a method, sequential, on one stage: what the other runs must equal."""

    @cache
    def run(kind: str) -> Finished:
        workshop = Workshop(tmp_path_factory.mktemp(kind.split()[0]))
        return workshop.run(*by(kind), "pipeline.schedule=sequential", "pipeline.stages=1")

    return run


OF_ALL = [
    pytest.param(kind, *layout, marks=[] if kind == "decoupled_greedy" or number == 2 else [pytest.mark.full])
    for kind in METHODS
    for number, layout in enumerate(LAYOUTS)
]
"""Every layout by one method; the others share its stages, and have one of them in `make test`."""


@pytest.mark.few
@pytest.mark.parametrize(("kind", "partition", "schedule", "in_flight"), OF_ALL)
def test_the_same_bits(workshop, reference_by, kind, partition, schedule, in_flight) -> None:
    run = workshop.run(
        *by(kind),
        f"pipeline.partition={partition}",
        f"pipeline.schedule={schedule}",
        f"pipeline.in_flight={in_flight}",
    )
    same(run, reference_by(kind))
    assert (run.summary.method, run.summary.partition) == (kind.split()[0], partition)


@pytest.mark.few
@pytest.mark.parametrize("partition", [[1, 2, 1], [1, 3]], ids=str)
@pytest.mark.parametrize("kind", SOME)
def test_the_same_bits_between_processes(workshop, reference_by, processes, kind, partition) -> None:
    same(workshop.run(*by(kind), f"pipeline.partition={partition}", inline=False), reference_by(kind))


@pytest.mark.few
@pytest.mark.parametrize("kind", SOME)
def test_the_same_bits_in_turns_on_two_stages(workshop, reference_by, kind) -> None:
    run = workshop.run(*by(kind), "pipeline.partition=[1,1,1,1]", "pipeline.virtual_stages=2")
    same(run, reference_by(kind))


@pytest.mark.few
@pytest.mark.parametrize("kind", SOME)
def test_a_resumed_run_on_other_stages(workshop, reference_by, kind) -> None:
    workshop.run(*by(kind), "pipeline.partition=[2,2]", "run.epochs=1")
    same(workshop.resume("run.epochs=3", "pipeline.partition=[1,1,2]"), reference_by(kind))


@pytest.mark.full
@pytest.mark.parametrize("kind", SOME)
def test_accuracies_and_exports_of_every_depth(workshop, one_thread, kind) -> None:
    finished = workshop.run(*by(kind), "pipeline.partition=[1,3]", "run.epochs=1")
    folder: Path = workshop.folder / "run"
    told = [(entry.depth, entry.test) for entry in finished.summary.accuracy_per_depth]
    depths = [1, 2, 3, 4] if SECTIONS.sections[kind.split()[0]].every_depth else [4]
    assert [depth for depth, _ in told] == depths
    accuracies = evaluate(TrainedNetwork(folder, allow_code=True)).scores
    assert [(entry.depth, entry.test) for entry in accuracies] == told
    trained = TrainedNetwork(folder, allow_code=True)
    samples = torch.randn(5, 2, 8, 8)
    with torch.no_grad():
        for depth in depths[:2]:
            scores = trained.route(depth)(samples.clone())
            file = Path(export_route(trained, depth, "safetensors", folder / f"{depth}.safetensors").file)
            assert torch.equal(ExportedRoute(file, allow_code=True).route(samples.clone()), scores)
            file = Path(export_route(trained, depth, "torch_export", folder / f"{depth}.pt2").file)
            torch.testing.assert_close(torch.export.load(file).module()(samples.clone()), scores)
