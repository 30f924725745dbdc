"""`alray.prove`: every way trains one reference's weights, and a planted fault is found where it begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import alray
from alray.models.component import Component
from alray.runtime.stage import checkpoint
from alray.runtime.stage.work import backpropagation
from alray.runtime.stage.work.backpropagation import BackpropagationWork

CLIPPED: dict[str, Any] = {
    "name": "clipped",
    "data": {"source": "synthetic", "shape": (2, 8, 8), "classes": 3, "samples": 60, "batch_size": 12},
    "model": {"components": [{"block": "vgg", "channels": [4]}, {"block": "vgg", "channels": [4]}]},
    "method": "backpropagation",
    "optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.9, "clip_norm": 0.1},
    "pipeline": {"schedule": "1f1b", "micro_batch_norm": "accept"},
    "run": {"epochs": 1, "precision": "float64"},
}
"""Batch normalisation, momentum and one norm over all gradients: what a pipeline gets wrong most easily."""


class Skipped(nn.Module):
    """A user's model with a connection over what would be a cut."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.second, self.last = nn.Conv2d(6, 6, 3, padding=1), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.first(x)))
        x = x + torch.relu(self.second(x))
        scores: torch.Tensor = self.last(x.mean((2, 3)))
        return scores


def noise() -> tuple[torch.Tensor, torch.Tensor]:
    given = torch.Generator().manual_seed(0)
    return torch.randn(60, 2, 8, 8, generator=given), torch.randint(0, 3, (60,), generator=given)


@pytest.mark.few
def test_a_module_trains_to_the_bits_of_a_plain_loop() -> None:
    keys = {"data.batch_size": 12, "pipeline.micro_batch_norm": "accept"}
    found = alray.prove(Skipped(), noise(), keys, mini_batches=3, stages=2, progress=False)
    ways = {way.name: way for way in found.ways}
    assert found.same
    assert ways["2 stages, naive"].reference == ways["1 stage, single"].reference == "plain loop of torch"
    assert (
        ways["2 stages, zero_bubble"].reference
        == ways["2 stages, resumed on 1"].reference
        == "plain loop, 4 micro-batches"
    )
    assert ways["2 stages, 2bw"].reference == "1 stage, 2bw"
    assert {way.largest_difference for way in found.ways if way.verdict == "equal"} == {0.0}


@pytest.mark.few
def test_the_loop_has_the_components_of_the_runs() -> None:
    """The natural components of this model are as many as it is cut into, and others."""
    spec = {
        "name": "cut",
        "method": "backpropagation",
        "model": {"from": "torchvision:squeezenet1_1", "with": {"num_classes": 4}},
        "data": {"source": "synthetic", "shape": [3, 32, 32], "classes": 4, "samples": 20, "batch_size": 4},
        "run": {"epochs": 1},
    }
    keys = {"pipeline.schedule": "naive", "optimizer.kind": "sgd", "optimizer.lr": 0.01}
    found = alray.prove(spec, overrides=keys, mini_batches=2, stages=2, progress=False)
    assert found.same and [way.verdict for way in found.ways if way.name == "2 stages, naive"] == ["equal"]


def test_local_losses_have_one_stage_as_their_reference() -> None:
    spec = CLIPPED | {"method": "decoupled_greedy", "pipeline": {}}
    found = alray.prove(spec, mini_batches=2, stages=2, progress=False)
    assert found.same
    assert {way.reference for way in found.ways} == {None, "1 stage, streamed"}


def last_micro_batch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    right = BackpropagationWork._gradients

    def wrong(self: Any, graph: Any, batch: Any) -> Any:
        if batch.own == 0 and batch.number == 3:
            self.zero_gradients(0)
        return right(self, graph, batch)

    monkeypatch.setattr(BackpropagationWork, "_gradients", wrong)


def norm_of_each_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        backpropagation, "clip", lambda parameters, largest, norms: nn.utils.clip_grad_norm_(parameters, largest)
    )


def old_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the mini-batch before are added."""
    monkeypatch.setattr(BackpropagationWork, "zero_gradients", lambda self, own=0: None)


def lost_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that goes on has not those of its checkpoint."""
    right = checkpoint._go_on

    def wrong(component: Component, *others: Any) -> None:
        right(component, *others)
        for name, value in component.weights().items():
            if "running_mean" in name:
                value.zero_()

    monkeypatch.setattr(checkpoint, "_go_on", wrong)


@pytest.mark.few
@pytest.mark.parametrize(
    ("plant", "name", "first", "why"),
    [
        (last_micro_batch_alone, "2 stages, 1f1b", "after mini-batch 1", "another gradient"),
        (norm_of_each_stage, "2 stages, 1f1b", "after mini-batch 1", "another gradient"),
        (old_gradients, "2 stages, 1f1b", "after mini-batch 2", "of an earlier one"),
        (lost_buffers, "2 stages, resumed on 1", "running_", "running statistics"),
    ],
)
def test_a_planted_fault_is_found_and_named(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], name: str, first: str, why: str
) -> None:
    plant(monkeypatch)
    found = alray.prove(CLIPPED, mini_batches=3, stages=2, progress=False)
    wrong = next(way for way in found.ways if way.verdict == "differs")
    assert wrong.name == name
    assert not found.same
    assert first in str(wrong.first) and why in str(wrong.why)


@pytest.mark.few
def test_a_spec_that_does_not_fit_on_one_stage_proves_nothing() -> None:
    samples, _ = noise()
    with pytest.raises(alray.AlrayError, match="has 4 classes"):
        alray.prove(Skipped(), (samples, torch.arange(60) % 4), {"data.batch_size": 12}, stages=2, progress=False)
