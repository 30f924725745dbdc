"""Pipelines of backpropagation that keep inputs only: the same bits, with less kept and more computed."""

from __future__ import annotations

from pathlib import Path

import pytest

from alray.core.run_folder.records import StageRecord, read

from .conftest import Workshop
from .test_imported import BENT
from .test_same_bits import same

ON = "pipeline.activation_checkpointing=true"
PIPELINE = (
    "method={kind: backpropagation}",
    "pipeline.micro_batch_norm=accept",
    "pipeline.micro_batches=4",
)
SHORT = "run.epochs=1"
FOUR = "pipeline.costs=[&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost, *cost, *cost]"
MODEL = "model={from: 'python:own_net.Net', with: {classes: 4}, components: 4}"
OWN = '''
import random

import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm


class Spectral(nn.Module):
    """Its forward depends on buffers that the forward before it has changed."""

    def __init__(self, input):
        super().__init__()
        self.conv = spectral_norm(nn.Conv2d(input[0], input[0], 3, padding=1))

    def forward(self, s, mask=None):
        return self.conv(s)


class Counting(nn.Module):
    """Scales by the number of its forwards, and draws from Python's generator."""

    def __init__(self, input):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(input[0], 1, 1))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, s, mask=None):
        if self.training:
            self.calls += 1
        return s * self.scale * (1 + random.random() / (1 + self.calls.clone()))
'''


@pytest.mark.parametrize(
    ("schedule", "layout"),
    [
        ("1f1b", "pipeline.partition=[1,2,1]"),
        pytest.param("1f1b", "pipeline.partition=[2,2]", marks=pytest.mark.full),
        ("gpipe", "pipeline.partition=[2,2]"),
        pytest.param("gpipe", "pipeline.partition=[1,2,1]", marks=pytest.mark.full),
        ("interleaved_1f1b", "pipeline.stages=2"),
        ("interleaved_1f1b", "pipeline.partition=[1,1,1,1] pipeline.virtual_stages=4"),
        ("zero_bubble", "pipeline.partition=[2,2]"),
        pytest.param("zero_bubble", "pipeline.partition=[1,1,1,1]", marks=pytest.mark.full),
    ],
)
def test_the_same_bits(workshop: Workshop, schedule: str, layout: str) -> None:
    """The network has batch normalisation, dropout, and a block that draws and writes on its input."""
    overrides = (*PIPELINE, SHORT, *layout.split(" "), f"pipeline.schedule={schedule}")
    same(workshop.run(*overrides, ON, name="again"), workshop.run(*overrides))


@pytest.mark.few
@pytest.mark.parametrize("block", ["Spectral", "Counting"])
def test_buffers_that_change_the_output(workshop: Workshop, block: str) -> None:
    """A second forward begins with the buffers that the first one began with, and leaves them alone."""
    (workshop.folder / "own.py").write_text(OWN)
    overrides = (*PIPELINE, SHORT, f"model.components.1={{block: 'python:own.{block}'}}")
    overrides += ("model.components.2.pool=8", "pipeline.partition=[2,1,1]")
    same(workshop.run(*overrides, ON, name="again"), workshop.run(*overrides))


@pytest.mark.full
def test_a_gradient_over_a_skip_connection(workshop: Workshop) -> None:
    """Two and three tensors cross the cuts; in bf16."""
    (workshop.folder / "own_net.py").write_text(BENT)
    overrides = (*PIPELINE, SHORT, MODEL, "run.precision=bf16", FOUR)
    overrides += ("pipeline.partition=[1,1,2]",)
    same(workshop.run(*overrides, ON, name="again"), workshop.run(*overrides))


@pytest.mark.full
def test_between_processes(workshop: Workshop, processes) -> None:
    """C is measured as computing, and a second forward sends nothing."""
    overrides = (*PIPELINE, "pipeline.partition=[1,2,1]", "pipeline.schedule=1f1b")
    kept = workshop.run(*overrides, inline=False)
    again = workshop.run(*overrides, ON, inline=False, name="again")
    same(again, kept)
    assert again.summary.bytes_sent == kept.summary.bytes_sent
    records = [each for each in read(Path(again.summary.run_dir) / "records.jsonl") if isinstance(each, StageRecord)]
    spans = [span.action for record in records if record.stage == 1 for span in record.spans]
    assert {"1C0", "1C0.3", "1F0.3", "1B0.3"} <= set(spans)
    assert not any("C" in span.action for record in records if record.stage == 2 for span in record.spans)


def test_the_plan_counts_it(make_planner) -> None:
    """Stage 0 keeps the graph of one micro-batch, not of all four; its forward is computed twice."""
    plans = []
    for on in ("false", "true"):
        planner = make_planner(
            "method={kind: backpropagation}",
            f"pipeline={{schedule: gpipe, stages: 2, micro_batch_norm: accept, activation_checkpointing: {on}}}",
        )
        plans.append(planner.plan(planner.costs(probe=False)))
    kept, again = (plan.stage_plans[0] for plan in plans)
    assert again.memory.activations_bytes == pytest.approx(kept.memory.activations_bytes / 4, abs=4)
    assert again.memory.total_bytes < kept.memory.total_bytes
    assert (again.forward_s, again.backward_s) == pytest.approx((2 * kept.forward_s, kept.backward_s))
    assert plans[1].predicted_step_time_s > plans[0].predicted_step_time_s
