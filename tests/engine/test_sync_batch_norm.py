"""With batch statistics over the replicas, they train what one process trains on the whole mini-batch, buffers too."""

from __future__ import annotations

from pathlib import Path

import pytest

from alray.core.errors import RequestError

from ..pairwise import first_alone
from .conftest import Watching, Workshop
from .test_replicas import ADAM, BP, SCPL, SGD, distance, replicas

SPEC = """
name: norms
seed: 3
data: {source: synthetic, shape: [2, 6, 6], classes: 4, samples: 400, batch_size: 64, validation_fraction: 0.2}
model:
  components:
    - {block: vgg, channels: [4]}
    - {block: residual, channels: 6, layers: 1, stride: 2}
    - {block: linear, width: 12, activation: tanh}
method: {kind: associated_learning, label_dim: 12}
pipeline: {costs: [{forward_s: 1, backward_s: 1, update_s: 0}, {forward_s: 1, backward_s: 1, update_s: 0},
                   {forward_s: 1, backward_s: 1, update_s: 0}]}
run: {steps: 10, evaluate_every: 4 steps, checkpoint: {every: 5 steps, keep: 50}}
"""
SHARED = "replicas.sync_batch_norm=true"


@pytest.fixture
def normalised(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path, SPEC)


@pytest.mark.few
@pytest.mark.parametrize("setting", first_alone([ADAM, SGD]), ids=["adam", "sgd"])
@pytest.mark.parametrize("method", [[], BP], ids=["al", "bp"])
def test_equal_one_process_on_the_whole_mini_batch(normalised, processes, method, setting) -> None:
    overrides, tolerance = [*method, *setting[0]], setting[1]
    one = normalised.run(*overrides, name="one")
    for layout in (replicas(2), replicas(3, "replicas.shares=[5, 17, 42]")):
        run = normalised.run(*overrides, *layout, SHARED, inline=False, name=f"shared-{len(layout)}")
        assert distance(run, one) <= tolerance, layout
        assert run.summary.accuracy == one.summary.accuracy


@pytest.mark.few
@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param([*ADAM[0], *SCPL], id="scpl"),
        # By SGD: what rounding leaves of the gradients of biases before a normalisation, Adam would make large.
        pytest.param(
            [
                "method={kind: decoupled_information, projection_dim: 10, gather: true}",
                "optimizer={kind: sgd, lr: 0.1}",
                "run.precision=float64",
            ],
            id="deinforeg",
        ),
    ],
)
def test_with_contrasts_of_all_replicas(normalised, processes, overrides) -> None:
    """Statistics and projections go over the replicas at the same time."""
    one = normalised.run(*overrides, name="one")
    layout = replicas(3, "replicas.shares=[5, 17, 42]", "pipeline.partition=[1,2]")
    run = normalised.run(*overrides, *layout, SHARED, inline=False)
    assert distance(run, one) <= ADAM[1]


def test_a_norm_that_its_parent_s_modules_do_not_lead_to(normalised, processes) -> None:
    """One is a block of a group, which calls its blocks' encoders; one is called by way of a list."""
    (normalised.folder / "norms.py").write_text(
        "import torch\n"
        "class Norm(torch.nn.BatchNorm1d):\n"
        "    def __init__(self, input): super().__init__(*input)\n"
        "class Listed(torch.nn.Module):\n"
        "    def __init__(self, input):\n"
        "        super().__init__(); self.norm = torch.nn.BatchNorm1d(*input); self.layers = [self.norm]\n"
        "    def forward(self, s): return self.layers[0](s)\n"
    )
    overrides = [
        *ADAM[0],
        "method={kind: decoupled_greedy, group: 2}",
        "model.components=[{block: linear, width: 12}, {block: 'python:norms.Norm'}, {block: linear, width: 12},"
        " {block: 'python:norms.Listed'}]",
        "pipeline.costs=null",
    ]
    one = normalised.run(*overrides, name="one")
    run = normalised.run(*overrides, *replicas(2), SHARED, inline=False)
    assert distance(run, one) <= ADAM[1]
    assert run.summary.accuracy == one.summary.accuracy


@pytest.mark.full
def test_a_replica_that_waits_for_one_that_evaluates_is_not_stuck(normalised, processes) -> None:
    """It waits within a computation."""
    (normalised.folder / "late.py").write_text(
        "import time\n"
        "import torch\n"
        "class Late(torch.nn.Module):\n"
        "    def __init__(self, input): super().__init__(); self.norm = torch.nn.BatchNorm1d(*input)\n"
        "    def forward(self, s, mask=None):\n"
        "        if not self.training and s.device.type != 'meta': time.sleep(0.5)\n"
        "        return self.norm(s)\n"
    )
    run = normalised.run(
        "model.components=[{block: linear, width: 12}, {block: 'python:late.Late'}, {block: linear, width: 12}]",
        *replicas(2),
        SHARED,
        "run={steps: 10, evaluate_every: 4 steps, checkpoint: null, deadline_s: 0.9}",
        inline=False,
    )
    assert run.error is None and run.summary.failures == []


def test_statistics_of_their_own_are_told(normalised) -> None:
    watching = Watching()
    one = normalised.run(*ADAM[0], name="one", watching=watching)
    assert not watching.notes
    run = normalised.run(*ADAM[0], *replicas(2), watching=watching)
    (note,) = watching.notes
    assert "2 replicas" in note and "replicas.sync_batch_norm=true" in note
    assert distance(run, one) > 1e-3


def test_not_in_one_process(normalised) -> None:
    with pytest.raises(RequestError, match="--inline: replicas in one process take turns, and would wait for ever"):
        normalised.run(*replicas(2), SHARED)
    assert not (normalised.folder / "run").exists()
