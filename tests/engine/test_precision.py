"""Mixed precision: the same bits on every partition, and a network that learns as in float32."""

from __future__ import annotations

import pytest

from ..pairwise import first_alone
from .conftest import Workshop
from .test_same_bits import METHODS, of_family, same

BF16 = "run.precision=bf16"
PIPELINE = ("method={kind: backpropagation}", "pipeline.micro_batch_norm=accept", "pipeline.micro_batches=4")


@pytest.mark.full
@pytest.mark.parametrize("family", first_alone(["vgg", "lstm", "transformer"]))
def test_the_same_bits_on_every_partition(workshop: Workshop, family: str) -> None:
    workshop = of_family(workshop, family)
    method = METHODS["associated_learning"]
    one = workshop.run(*method, BF16, "pipeline.partition=[4]")
    same(workshop.run(*method, BF16, "pipeline.partition=[1,2,1]", name="three"), one)
    full = workshop.run(*method, name="full")
    assert full.summary.weights_sha256 != one.summary.weights_sha256


@pytest.mark.full
def test_a_pipeline_of_backpropagation_and_its_evaluation_later(workshop: Workshop, processes) -> None:
    """The pipeline in processes, its gradients added up in one process, and its checkpoint evaluated."""
    run = workshop.run(*PIPELINE, BF16, "pipeline.partition=[1,3]", "pipeline.schedule=1f1b", inline=False)
    same(run, workshop.run(*PIPELINE, BF16, "pipeline.partition=[2,2]", "pipeline.schedule=gpipe", name="other"))
    full = workshop.run(*PIPELINE, "pipeline.partition=[1,3]", "pipeline.schedule=1f1b", name="full")
    assert full.summary.weights_sha256 != run.summary.weights_sha256
    assert run.summary.accuracy.train == pytest.approx(full.summary.accuracy.train, abs=0.15)


@pytest.mark.few
@pytest.mark.parametrize("schedule", ["1f1b", "zero_bubble"])
def test_autocast_takes_no_input_of_a_stage_for_a_weight(workshop: Workshop, schedule: str) -> None:
    """The first block of the second stage convolves its input twice, the second time in its shortcut."""
    of_family(workshop, "resnet")
    one = workshop.run(*PIPELINE, BF16, "pipeline.partition=[4]", "pipeline.schedule=1f1b", name="one")
    same(workshop.run(*PIPELINE, BF16, "pipeline.partition=[2,2]", f"pipeline.schedule={schedule}"), one)
