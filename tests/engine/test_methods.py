"""Supervised contrastive learning resumes in the same bits, leaves what a run leaves, and learns.

`test_same_bits.py` has its partitions, schedules and engines.
"""

from __future__ import annotations

import pytest

from alray.core.errors import RequestError
from alray.core.run_folder.records import StepRecord, read
from alray.inference.network import TrainedNetwork
from alray.inference.requests import evaluate
from alray.orchestrate import Finished, Options, run_spec

from .conftest import Asked, Watching, Workshop
from .test_same_bits import same

SCPL = "method={kind: supervised_contrastive, projection_dim: 6}"
DEBIASED = "method={kind: supervised_contrastive, projection_dim: 6, debiased: 0.25}"
KEEP = "data.last_batch=keep"

DIGITS = """
name: digits
data: {source: digits, image_size: 16, batch_size: 64}
model:
  components:
    - {block: vgg, channels: [16], pool: true}
    - {block: vgg, channels: [32]}
    - {block: vgg, channels: [32], pool: true}
method: {kind: supervised_contrastive}
pipeline: {stages: 3, costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost, *cost]}
run: {epochs: 4, evaluate_every: null}
"""


@pytest.fixture(scope="module")
def contrastive(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The tiny spec by supervised contrastive learning, sequential, on one stage: what its other runs must equal."""
    workshop = Workshop(tmp_path_factory.mktemp("contrastive"))
    return workshop.run(SCPL, KEEP, "pipeline.schedule=sequential", "pipeline.stages=1")


@pytest.mark.full
def test_a_resumed_run_on_other_stages(workshop, contrastive) -> None:
    workshop.run(SCPL, KEEP, "pipeline.partition=[2,2]", "run.epochs=1")
    same(workshop.resume("run.epochs=3", "pipeline.partition=[1,1,2]"), contrastive)


@pytest.mark.full
def test_the_debiased_loss_trains_otherwise(workshop, contrastive) -> None:
    runs = [
        workshop.run(DEBIASED, KEEP, f"pipeline.partition={partition}", name=f"debiased-{number}")
        for number, partition in enumerate(([4], [2, 1, 1]))
    ]
    same(runs[1], runs[0])
    assert runs[0].summary.weights_sha256 != contrastive.summary.weights_sha256


def test_what_a_run_leaves_behind(workshop) -> None:
    """Losses by component, one route at the full depth, and files that `evaluate` reads."""
    finished = workshop.run(SCPL, "pipeline.partition=[1,3]", "run.epochs=1")
    folder = workshop.folder / "run"
    losses = [record.losses for record in read(folder / "records.jsonl") if isinstance(record, StepRecord)]
    assert losses
    for of_step in losses:
        assert {index: list(own) for index, own in of_step.items()} == {
            **{index: ["contrastive"] for index in range(3)},
            3: ["cross_entropy"],
        }
    assert [entry.depth for entry in finished.summary.accuracy_per_depth] == [4]
    accuracies = evaluate(TrainedNetwork(folder, allow_code=True)).scores
    assert [(entry.depth, entry.test) for entry in accuracies] == [(4, finished.summary.accuracy.test)]
    with pytest.raises(RequestError, match="there is no route of depth 2"):
        evaluate(TrainedNetwork(folder, allow_code=True), 2)


@pytest.mark.full
def test_digits_are_learned(tmp_path) -> None:
    spec = tmp_path / "digits.yaml"
    spec.write_text(DIGITS)
    finished = run_spec(spec, [], Options(inline=True, run_dir=tmp_path / "run", pages=False), Watching(), Asked())
    assert finished.summary.accuracy.test > 0.9
