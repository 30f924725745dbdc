"""`alray.prove`: every way trains one reference's weights, and a planted fault is found where it begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
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


def test_few_samples_make_small_mini_batches() -> None:
    samples, labels = (each[:40] for each in noise())
    prove = partial(alray.prove, nn.Sequential(nn.Flatten(), nn.Linear(128, 3)), (samples, labels), progress=False)
    found = prove(mini_batches=2, stages=1)
    assert found.same and found.mini_batches == 2
    with pytest.raises(alray.AlrayError, match="fewer than one mini-batch of 50"):
        prove({"data.batch_size": 50})


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
        if batch.number == 3:
            self.zero_gradients(batch.own)
        return right(self, graph, batch)

    monkeypatch.setattr(BackpropagationWork, "_gradients", wrong)


def norm_of_each_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        backpropagation, "clip", lambda parameters, largest, norms: nn.utils.clip_grad_norm_(parameters, largest)
    )


def norm_of_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradients of four micro-batches are clipped before they are divided by four."""
    right = backpropagation.clip
    monkeypatch.setattr(
        backpropagation, "clip", lambda parameters, largest, norms: right(parameters, largest / 4, norms)
    )


def norm_over_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batch normalisation sees quarters of a mini-batch that a schedule does not cut."""
    right = backpropagation.through

    def wrong(chain: Any, incoming: Any, *others: Any, **more: Any) -> Any:
        names = list(incoming)
        cut = zip(*(incoming[name].chunk(4) for name in names), strict=True)
        outgoing, scores = zip(
            *(right(chain, dict(zip(names, part, strict=True)), *others, **more) for part in cut), strict=True
        )
        return tuple({name: torch.cat([each[name] for each in of]) for name in of[0]} for of in (outgoing, scores))

    monkeypatch.setattr(backpropagation, "through", wrong)


def old_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the mini-batch before are added."""
    monkeypatch.setattr(BackpropagationWork, "zero_gradients", lambda self, own=0: None)


def stale_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """The upper stage computes with those from before its last update."""
    update = BackpropagationWork.update

    def wrong_update(self: Any, lr: float, own: int = 0, *, step: int) -> None:
        if self.chains[own][0].index:
            self.old = [each.detach().clone() for each in self._trainable[own]]
        update(self, lr, own, step=step)

    @contextmanager
    def wrong(self: Any, batch: Any, *, kept: bool = False) -> Iterator[None]:
        changed = list(zip(self._trainable[batch.own], getattr(self, "old", ()), strict=False))
        newest = [each.data for each, _ in changed]
        for each, old in changed:
            each.data = old
        yield
        for (each, _), new in zip(changed, newest, strict=True):
            each.data = new

    monkeypatch.setattr(BackpropagationWork, "update", wrong_update)
    monkeypatch.setattr(BackpropagationWork, "_weights", wrong)


def lost_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that goes on has not those of its checkpoint."""
    right = checkpoint._go_on

    def wrong(component: Component, *others: Any) -> None:
        right(component, *others)
        for name, value in component.weights().items():
            if "running_mean" in name:
                value.zero_()

    monkeypatch.setattr(checkpoint, "_go_on", wrong)


def unknown_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """An update at another rate."""
    right = BackpropagationWork.update
    monkeypatch.setattr(
        BackpropagationWork, "update", lambda self, lr, own=0, *, step: right(self, lr / 3, own, step=step)
    )


@pytest.mark.few
@pytest.mark.parametrize(
    ("plant", "schedule", "name", "first", "why"),
    [
        (last_micro_batch_alone, "1f1b", "2 stages, 1f1b", "mini-batch 1", "the last micro-batch alone has a gradient"),
        (norm_of_each_stage, "1f1b", "2 stages, 1f1b", "mini-batch 1", "each stage clips by a norm of its own"),
        (norm_of_the_sum, "1f1b", "2 stages, 1f1b", "mini-batch 1", "the sum of the micro-batches is clipped"),
        (norm_over_micro_batches, "naive", "2 stages, naive", "mini-batch 1", "norms are over 4 micro-batches"),
        (old_gradients, "1f1b", "2 stages, 1f1b", "mini-batch 2", "gradients of the mini-batch before are added"),
        (stale_weights, "1f1b", "2 stages, 1f1b", "mini-batch 2", "stage 1 computes with its weights from before the"),
        (lost_buffers, "1f1b", "2 stages, resumed on 1", "running_", "buffers became what they were at first"),
        (unknown_fault, "1f1b", "2 stages, 1f1b", "mini-batch 1", "another gradient, from other samples"),
    ],
)
def test_a_planted_fault_is_found_and_named(
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
    schedule: str,
    name: str,
    first: str,
    why: str,
) -> None:
    plant(monkeypatch)
    found = alray.prove(CLIPPED, overrides={"pipeline.schedule": schedule}, mini_batches=3, stages=2, progress=False)
    wrong = next(way for way in found.ways if way.verdict == "differs")
    assert wrong.name == name
    assert not found.same
    assert first in str(wrong.first) and why in str(wrong.why)


class Counting(nn.Module):
    """Counts its mini-batches in a buffer that no checkpoint has."""

    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.register_buffer("seen", torch.zeros(()), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        self.seen = self.seen + 1
        scores: torch.Tensor = self.last(torch.relu(self.second(x)) * (1 + 0.1 * self.seen))
        return scores


@pytest.mark.few
def test_a_buffer_that_no_checkpoint_has_is_named() -> None:
    data = torch.randn(48, 4, generator=torch.Generator().manual_seed(0)), torch.arange(48) % 3
    keys = {"data.batch_size": 12, "pipeline.schedule": "naive"}
    found = alray.prove(Counting(), data, keys, mini_batches=2, stages=2, progress=False)
    (resumed,) = (way for way in found.ways if way.verdict == "differs")
    assert resumed.name == "2 stages, resumed on 1"
    assert "buffers became what they were at first" in str(resumed.why)


def test_notes_on_the_data_of_a_proof_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """Classes without a sample: noise for a model of 1,000 classes has some."""
    spec = CLIPPED | {"data": {**CLIPPED["data"], "classes": 40}, "method": "decoupled_greedy", "pipeline": {}}
    assert alray.prove(spec, mini_batches=2, stages=1).same
    told = capsys.readouterr().err
    assert "opening the data and the model" in told and "no sample" not in told


@pytest.mark.few
def test_a_spec_that_does_not_fit_on_one_stage_proves_nothing() -> None:
    samples, _ = noise()
    with pytest.raises(alray.AlrayError, match="has 4 classes"):
        alray.prove(Skipped(), (samples, torch.arange(60) % 4), {"data.batch_size": 12}, stages=2, progress=False)
