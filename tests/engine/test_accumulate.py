"""Gradients gathered over mini-batches: the mathematics of larger ones, in the same bits however a run is laid out."""

from __future__ import annotations

import textwrap

import pytest
import torch
from safetensors.torch import load_file

from alray.orchestrate import Finished, Options, run_spec

from .conftest import Asked, Watching, Workshop
from .test_same_bits import same

THREE = "optimizer.accumulate=3"
"""Seven mini-batches an epoch: updates do not end with epochs, evaluations or checkpoints."""

SMOOTH = """
name: smooth
data: {source: synthetic, shape: [6], classes: 3, samples: 160, validation_fraction: 0.2, batch_size: 32}
model:
  components:
    - {block: linear, width: 8, activation: tanh}
    - {block: linear, width: 8, activation: tanh}
optimizer: {kind: adam, lr: 1e-2}
pipeline: {costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost]}
run: {epochs: 3, evaluate_every: null, checkpoint: null, precision: float64}
"""


@pytest.fixture(scope="module")
def gathered(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The tiny spec with three mini-batches an update, on one stage: what its other runs must equal."""
    return Workshop(tmp_path_factory.mktemp("gathered")).run(THREE, "pipeline.schedule=sequential", "pipeline.stages=1")


@pytest.mark.parametrize(
    ("partition", "schedule"),
    [([1, 2, 1], "overlapped"), pytest.param([2, 2], "streamed", marks=pytest.mark.full)],
    ids=str,
)
def test_every_layout_gives_the_same_bits(workshop, gathered, reference, partition, schedule) -> None:
    run = workshop.run(THREE, f"pipeline.partition={partition}", f"pipeline.schedule={schedule}")
    same(run, gathered)
    assert run.summary.weights_sha256 != reference.summary.weights_sha256


@pytest.mark.full
def test_a_run_that_stops_between_two_updates_is_resumed_in_the_same_bits(workshop, gathered) -> None:
    workshop.run(THREE, "pipeline.stages=1", "run.epochs=1")
    same(workshop.resume("run.epochs=3", "pipeline.partition=[1,3]"), gathered)


@pytest.mark.few
@pytest.mark.parametrize(
    "method",
    [
        ("method={kind: associated_learning, label_dim: 5}",),
        ("method=backpropagation",),
        ("method=backpropagation", "pipeline.schedule=gpipe", "pipeline.micro_batches=4"),
    ],
    ids=lambda method: method[-1],
)
def test_as_mini_batches_of_all_samples(tmp_path, method) -> None:
    def weights(name: str, *overrides: str) -> torch.Tensor:
        spec = tmp_path / "smooth.yaml"
        spec.write_text(textwrap.dedent(SMOOTH))
        options = Options(run_dir=tmp_path / name, inline=True, pages=False)
        finished = run_spec(spec, [*method, *overrides], options, Watching(), Asked())
        assert finished.error is None
        (folder,) = (tmp_path / name / "checkpoints").iterdir()
        tensors = [load_file(file) for file in sorted(folder.glob("*.safetensors"))]
        return torch.cat([value.flatten() for held in tensors for _, value in sorted(held.items())])

    whole = weights("whole", "data.batch_size=32")
    parts = weights("parts", "data.batch_size=8", "optimizer.accumulate=4")
    other = weights("other", "data.batch_size=8")
    assert (parts - whole).norm() <= 1e-10 * whole.norm()
    assert (other - whole).norm() > 1e-3 * whole.norm()
