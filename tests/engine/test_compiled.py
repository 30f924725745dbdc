"""Components compiled by torch.compile: the same bits on every partition."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch import nn

from alray.core.errors import PlanError
from alray.models.compiled import compile_part, require_compiler

from .conftest import Workshop
from .test_same_bits import same

SMALL = """
name: compiled
seed: 3
data: {source: synthetic, shape: [6], classes: 3, samples: 40, batch_size: 8}
model:
  components:
    - {block: linear, width: 5}
    - {block: linear, width: 4}
method: {kind: associated_learning, label_dim: 4}
optimizer: {kind: sgd, lr: 0.05}
pipeline: {costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost]}
run: {epochs: 2, checkpoint: null, evaluate_every: null, compile: true}
"""
with_a_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "clang++"))), reason="torch.compile needs a C++ compiler, and there is none"
)


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("CXX", "icpx")
    with pytest.raises(PlanError, match=r"run\.compile: .* none of icpx, g\+\+, clang\+\+"):
        require_compiler()


@pytest.mark.full
@with_a_compiler
def test_each_size_is_compiled_by_itself() -> None:
    """Two layers of one class and two sizes of a batch are four graphs, none of them for any size."""
    torch._dynamo.reset()
    graphs: list[list[torch.SymInt | int]] = []

    def keep(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]):
        graphs.append([size for each in inputs for size in each.shape])
        return graph

    for width in (3, 4):
        layer = nn.Linear(5, width)
        compile_part(layer)
        layer._compiled_call_impl = torch.compile(layer._call_impl, backend=keep, dynamic=False)
        for samples in (2, 7):
            layer(torch.ones(samples, 5))
    assert len(graphs) == 4 and all(type(size) is int for sizes in graphs for size in sizes)


@with_a_compiler
@pytest.mark.full
def test_the_same_bits_on_every_partition(workshop: Workshop) -> None:
    workshop.spec.write_text(SMALL)
    one = workshop.run("pipeline.partition=[2]")
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    torch._dynamo.reset()
    same(workshop.run("pipeline.partition=[1,1]", name="two"), one)
