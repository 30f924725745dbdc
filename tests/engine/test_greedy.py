"""Decoupled greedy learning streams, resumes, is evaluated at every depth and is exported as Associated Learning is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from alray.inference.export import export_route
from alray.inference.exported import ExportedRoute
from alray.inference.network import TrainedNetwork
from alray.inference.requests import evaluate_run
from alray.orchestrate import Finished

from .conftest import Workshop
from .test_same_bits import same

DGL = "method={kind: decoupled_greedy, head: {pool: 2, hidden: 8}, label_smoothing: 0.1}"
KEEP = "data.last_batch=keep"


@pytest.fixture(scope="module")
def greedy(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Sequential, on one stage: what the other runs must equal."""
    workshop = Workshop(tmp_path_factory.mktemp("greedy"))
    return workshop.run(DGL, KEEP, "pipeline.schedule=sequential", "pipeline.stages=1")


@pytest.mark.parametrize(
    ("partition", "schedule", "in_flight"),
    [
        ([4], "streamed", 4),
        ([1, 3], "streamed", 1),
        ([3, 1], "overlapped", 4),
        ([2, 2], "parallel_backward", 2),
        ([1, 2, 1], "sequential", 2),
        ([1, 1, 1, 1], "streamed", 7),
    ],
    ids=str,
)
def test_the_same_bits(workshop, greedy, partition, schedule, in_flight) -> None:
    run = workshop.run(
        DGL,
        KEEP,
        f"pipeline.partition={partition}",
        f"pipeline.schedule={schedule}",
        f"pipeline.in_flight={in_flight}",
    )
    same(run, greedy)
    assert (run.summary.method, run.summary.partition) == ("decoupled_greedy", partition)


def test_a_resumed_run_on_other_stages(workshop, greedy) -> None:
    workshop.run(DGL, KEEP, "pipeline.partition=[2,2]", "run.epochs=1")
    same(workshop.resume("run.epochs=3", "pipeline.partition=[1,1,2]"), greedy)


def test_accuracies_and_exports_of_every_depth(workshop, one_thread) -> None:
    finished = workshop.run(DGL, "pipeline.partition=[1,3]", "run.epochs=1")
    folder: Path = workshop.folder / "run"
    told = [(entry.depth, entry.test) for entry in finished.summary.accuracy_per_depth]
    assert [depth for depth, _ in told] == [1, 2, 3, 4]
    accuracies = evaluate_run(folder, depth=None, allow_code=True).accuracies
    assert [(entry.depth, entry.test) for entry in accuracies] == told
    trained = TrainedNetwork(folder, allow_code=True)
    samples = torch.randn(5, 2, 8, 8)
    with torch.no_grad():
        for depth in (1, 2):
            scores = trained.route(depth)(samples.clone())
            file = Path(export_route(trained, depth, "safetensors", folder / f"{depth}.safetensors").file)
            assert torch.equal(ExportedRoute(file, allow_code=True).route(samples.clone()), scores)
            file = Path(export_route(trained, depth, "torch_export", folder / f"{depth}.pt2").file)
            torch.testing.assert_close(torch.export.load(file).module()(samples.clone()), scores)
