"""Pipelines of backpropagation that keep inputs only: the same bits, with less kept and more computed."""

from __future__ import annotations

import pytest

from .conftest import Workshop
from .test_same_bits import same

ON = "pipeline.activation_checkpointing=true"
PIPELINE = (
    "method={kind: backpropagation}",
    "pipeline.micro_batch_norm=accept",
    "pipeline.micro_batches=4",
    "pipeline.partition=[1,2,1]",
)


@pytest.mark.parametrize("schedule", [pytest.param("gpipe", marks=pytest.mark.full), "1f1b"])
def test_the_same_bits(workshop: Workshop, processes, schedule: str) -> None:
    """The network has batch normalisation, dropout, and a block that draws and writes on its input."""
    overrides = (*PIPELINE, f"pipeline.schedule={schedule}")
    kept = workshop.run(*overrides, inline=False)
    recomputed = workshop.run(*overrides, ON, inline=False, name="recomputed")
    same(recomputed, kept)
    same(workshop.run(*overrides, ON, name="inline"), kept)


def test_the_plan_counts_it(make_planner) -> None:
    """Stage 0 keeps the inputs of two micro-batches, not all that their forwards left; its B includes an F."""
    plans = []
    for on in ("false", "true"):
        planner = make_planner(
            "method={kind: backpropagation}",
            f"pipeline={{schedule: gpipe, stages: 2, micro_batch_norm: accept, activation_checkpointing: {on}}}",
        )
        plans.append(planner.plan(planner.costs(probe=False)))
    (kept, recomputed), (longer, shorter) = ([plan.stage_plans[0] for plan in plans], plans[::-1])
    assert recomputed.memory.activations_bytes < kept.memory.activations_bytes
    assert recomputed.memory.total_bytes < kept.memory.total_bytes
    assert longer.stage_plans[0].backward_s == pytest.approx(
        shorter.stage_plans[0].backward_s + shorter.stage_plans[0].forward_s
    )
