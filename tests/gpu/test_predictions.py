"""A trained network on a GPU: evaluated, asked for predictions, and timed."""

from __future__ import annotations

import pytest
import torch

from alray.inference.network import TrainedNetwork
from alray.inference.route_costs import measure_routes, whole_batch

from ..engine.conftest import Workshop
from .conftest import GPU, ON_GPU, SIMULATED, host_waits


@pytest.fixture
def trained(workshop: Workshop) -> TrainedNetwork:
    run = workshop.run(*ON_GPU, "pipeline.stages=1")
    assert run.error is None
    return TrainedNetwork(workshop.folder / "run", allow_code=True)


def test_it_is_evaluated_on_the_gpu(trained: TrainedNetwork) -> None:
    assert trained.device == GPU
    batch = whole_batch(trained.workload.data)
    scores = trained.scores(batch, 0)
    assert all(each.device == GPU for each in scores)
    found = trained.evaluate(("test",))
    assert len(found) == len(trained.depths)


def test_a_prediction_is_timed_until_the_gpu_has_made_it(trained: TrainedNetwork) -> None:
    waits = host_waits()
    costs = measure_routes(trained, trained.depths)
    assert all(cost.time_per_sample_s > 0 for cost in costs)
    if SIMULATED:
        assert host_waits() - waits >= 6 * len(costs)
    assert torch.is_grad_enabled()
