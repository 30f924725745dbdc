"""A trained network on a GPU: evaluated, asked for predictions, timed and exported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import alray
from alray.core import accelerator
from alray.core.errors import PlanError, SystemFault
from alray.inference.export import export_route
from alray.inference.exported import ExportedRoute
from alray.inference.network import TrainedNetwork, whole_batch

from ..engine.conftest import Workshop
from ..engine.ledger import specs, weights_of
from .conftest import GPU, ON_GPU, SIMULATED


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrainedNetwork]:
    workshop = Workshop(tmp_path_factory.mktemp("trained"))
    run = workshop.run(*ON_GPU, "pipeline.stages=1", "run.epochs=1")
    assert run.error is None
    yield TrainedNetwork(workshop.folder / "run", allow_code=True)


def test_it_is_evaluated_on_the_gpu(trained: TrainedNetwork) -> None:
    assert trained.device == GPU
    batch = whole_batch(trained.workload.data)
    scores = trained.scores(batch, 0)
    assert all(each.device == GPU for each in scores)
    found = trained.evaluate(("test",))
    assert len(found) == len(trained.depths)


@pytest.mark.skipif(not SIMULATED, reason="the GPU is to be full")
def test_a_full_gpu_is_named(trained: TrainedNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by another program. It was an error of torch, with its traceback."""
    from ..simulated import MACHINE

    monkeypatch.setattr(MACHINE, "limit_bytes", MACHINE.usage(0).allocated)
    with pytest.raises(SystemFault, match="the GPU ran out of memory"):
        alray.load_run(trained.run_dir).evaluate()


def test_a_gpu_that_does_not_know_bfloat16_evaluates_no_run_in_it(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert workshop.run(*ON_GPU, "pipeline.stages=1", "run.epochs=1", "run.precision=bf16").error is None
    monkeypatch.setattr(accelerator, "knows_bfloat16", lambda device: False)
    with pytest.raises(PlanError, match="does not know bfloat16"):
        alray.load_run(workshop.folder / "run").evaluate()


def test_a_processor_predicts_and_exports_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the run folder of a GPU."""
    documents = ["a stage waits", "labels learns from an encoder while a neighbour waits"]
    weights_of(specs()["dgl_texts"], tmp_path, *ON_GPU, "run.precision=float32", "run.checkpoint={every: 3 steps}")
    there = TrainedNetwork(tmp_path / "run", allow_code=False)
    assert there.device == GPU
    predicted = there.predict(documents, None)
    exported = export_route(there, None, "safetensors")
    monkeypatch.setattr(accelerator, "available", lambda wanted="auto": None)
    here = TrainedNetwork(tmp_path / "run", allow_code=False)
    assert here.device == torch.device("cpu")
    by_processor = here.predict(documents, None)
    assert ExportedRoute(Path(exported.file), allow_code=False).predict(documents, None) == by_processor
    if SIMULATED:  # a real GPU has other bits
        assert predicted == by_processor
