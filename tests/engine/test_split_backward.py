"""A pipeline that splits backward passes ends in the bits of one that does not, whatever its blocks do in them."""

from __future__ import annotations

import shutil

import pytest

from tests.models import blocks_with_own_backward

from .conftest import Workshop

SPEC = """
name: split
seed: 5
data: {source: synthetic, shape: [7], classes: 3, samples: 60, batch_size: 12, validation_fraction: 0.2}
model: {components: [{block: linear, width: 7}, COMPONENTS]}
method: {kind: backpropagation}
optimizer: {kind: sgd, lr: 0.1, momentum: 0.9}
pipeline: {stages: 2, virtual_stages: 2, micro_batches: 4, micro_batch_norm: accept, costs: [COSTS]}
run: {steps: 2}
"""
COST = "{forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}"
LINEAR = "{block: linear, width: 7, repeat: 6}"
LISTED = """0F0,0F1,3F0,3I0,0F2,3F1,3B1,0B0,3W0,0F3,3F2,3B2,0B1,3F3,3I3,0B2,0B3,3W3
1F0,2F0,1F1,2F1,1F2,2F2,2B0,1I0,1W0,2I1,2W1,1B1,1F3,2F3,2I2,1B2,2W2,2I3,1I3,1W3,2W3
"""
"""It has each of B, I and W on both stages."""


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """One network with all of these blocks."""
    folder = tmp_path_factory.mktemp("split")
    shutil.copy(blocks_with_own_backward.__file__, folder / "own.py")
    (folder / "mine.csv").write_text(LISTED)
    workshop = Workshop(folder)
    blocks = [f"{{block: 'python:own.{made.__name__}', width: 7}}" for made in blocks_with_own_backward.BLOCKS]
    costs = ", ".join([COST] * (len(blocks) + 1))
    workshop.spec.write_text(SPEC.replace("COMPONENTS", ", ".join(blocks)).replace("COSTS", costs))
    return workshop


def trained(workshop: Workshop, schedule: str, *overrides: str, name: str | None = None) -> str:
    run = workshop.run(f"pipeline.schedule={schedule}", *overrides, name=name or schedule.replace(".", "_"))
    assert run.error is None, run.error
    assert run.summary.weights_sha256 is not None
    return run.summary.weights_sha256


@pytest.fixture(scope="module")
def unsplit(workshop: Workshop) -> str:
    return trained(workshop, "1f1b", "pipeline.virtual_stages=1")


@pytest.mark.few
@pytest.mark.parametrize("schedule", ["zero_bubble", "zb_v", "dualpipe_v", "mine.csv"])
def test_blocks_that_take_part_in_the_backward_pass(workshop: Workshop, unsplit: str, schedule: str) -> None:
    assert trained(workshop, schedule) == unsplit


@pytest.mark.parametrize("schedule", ["zero_bubble", "dualpipe_v"])
def test_compressed_messages(workshop: Workshop, schedule: str) -> None:
    """Between components of one virtual stage, too, where an operation of autograd rounds them."""
    messages = "pipeline.messages={compression: int8}"
    keys = (messages, f"model.components=[{LINEAR}]", f"pipeline.costs=[{', '.join([COST] * 6)}]")
    whole = trained(workshop, "1f1b", "pipeline.virtual_stages=1", *keys, name=f"whole_{schedule}")
    assert trained(workshop, schedule, *keys, name=f"compressed_{schedule}") == whole
