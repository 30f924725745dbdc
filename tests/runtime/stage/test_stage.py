"""A stage against plain torch: the same numbers, bit for bit."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from alray.core.errors import NonFiniteLoss
from alray.runtime.stage.assemble import work_of
from alray.runtime.stage.clock import Clock
from alray.runtime.stage.ports import Ports
from alray.runtime.stage.stage import MiniBatch, Stage
from alray.runtime.stage.work.backpropagation import BackpropagationWork
from alray.runtime.stage.work.local_losses import LocalLosses
from alray.runtime.stage.work.work import all_finite, finite_values

from ...mini_batches import backward, forward
from ...programs import parse_program

BP = "method={kind: backpropagation}"


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    numbers = torch.Generator().manual_seed(step)
    return torch.randn(8, 2, 8, 8, generator=numbers), torch.randint(0, 4, (8,), generator=numbers)


def plain(stage, network) -> nn.Sequential:
    """The same network as one module made by hand, with the same initial weights."""
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 6, 3, padding=1, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(6 * 4 * 4, 4),
    )
    weights = [value for component in stage.components for value in component.weights().values()]
    assert len(weights) == len(model.state_dict())
    model.load_state_dict(dict(zip(model.state_dict(), weights, strict=True)))
    return model


@pytest.mark.parametrize(
    ("optimizer", "make"),
    [
        ("{kind: adam, lr: 0.01}", lambda p: torch.optim.Adam(p, lr=0.01, foreach=False)),
        ("{kind: sgd, lr: 0.05, momentum: 0.9}", lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, foreach=False)),
    ],
)
def test_backpropagation_equals_a_plain_loop(make_network, optimizer, make):
    network = make_network(BP, f"optimizer={optimizer}", "method.label_smoothing=0.1")
    stage = work_of([network.component(index, "cpu") for index in range(2)])
    assert isinstance(stage, BackpropagationWork)
    model = plain(stage, network)
    plain_optimizer = make(model.parameters())
    rate = plain_optimizer.param_groups[0]["lr"]
    for step in range(1, 6):
        s, labels = batch(step)
        assert forward(stage, {"s": s, "labels": labels}, step) == {}
        losses = backward(stage)
        stage.update(rate, step=step)
        plain_optimizer.zero_grad()
        loss = functional.cross_entropy(model(s), labels, label_smoothing=0.1)
        loss.backward()
        plain_optimizer.step()
        assert list(losses) == [1] and torch.equal(losses[1]["cross_entropy"], loss)
    mine = [value for component in stage.components for value in component.weights().values()]
    assert all(torch.equal(left, right) for left, right in zip(mine, model.state_dict().values(), strict=True))
    stage.evaluation_mode(True)
    model.eval()
    _, (scores,) = stage.infer_up({"s": batch(9)[0]}, 5, 0)
    with torch.no_grad():
        assert torch.equal(scores, model(batch(9)[0]))


@pytest.mark.parametrize("backward", ["B", "I"])
def test_a_loss_of_one_sample_is_said_to_be_one(backward):
    """Whether the backward pass is whole, or the first part of a split one."""
    losses = {1: {"contrastive": torch.tensor(math.nan)}}
    work = SimpleNamespace(
        clips_together=False,
        runs=[slice(0, 1)],
        begin=lambda: None,
        replication=SimpleNamespace(own_samples=lambda samples: samples // 2),
        forward=lambda part: None,
        backward=lambda part: losses,
        input_gradient=lambda part: losses,
    )
    stage = Stage(work, parse_program(f"0F0 0{backward}0 0U0")[0], micro_batches=1)
    batch = MiniBatch(1, lr=0.01, samples=2)
    with pytest.raises(NonFiniteLoss, match="of one sample"):
        next(stage.mini_batch(batch, Ports(), Clock(started_wall_s=0.0, start_step=0)))


def test_micro_batches_of_other_sizes_are_refused(make_network):
    """Each of them counts as the same part of the gradient."""
    stage = Stage(work_of([make_network(BP).component(0, "cpu")]), micro_batches=4)
    uneven = MiniBatch(1, lr=0.01, samples=11, incoming={"s": torch.zeros(11, 2, 8, 8)})
    with pytest.raises(AssertionError, match="4 micro-batches do not divide 11 samples"):
        next(stage.mini_batch(uneven, Ports(), Clock(started_wall_s=0.0, start_step=0)))


def test_losses_are_named_by_component_and_loss(make_network):
    network = make_network("model.components=[{block: vgg, channels: [4], repeat: 3}]")
    stage = work_of([network.component(index, "cpu") for index in (1, 2)])
    assert isinstance(stage, LocalLosses)
    below = work_of([network.component(0, "cpu")])
    s, labels = batch(1)
    forward(stage, forward(below, {"s": s, "labels": labels}, 1), 1)
    losses = backward(stage)
    assert {index: sorted(named) for index, named in losses.items()} == {
        1: ["associated", "autoencoder"],
        2: ["associated", "autoencoder"],
    }


@pytest.mark.parametrize("method", ["method.label_dim=5", BP])
def test_evaluation_mode_is_of_every_module_and_can_be_left(make_network, method):
    network = make_network(method)
    stage = work_of([network.component(index, "cpu") for index in range(2)])
    assert all(module.training for component in stage.components for module in component.modules())
    stage.evaluation_mode(True)
    assert not any(module.training for component in stage.components for module in component.modules())
    before = [value.clone() for component in stage.components for value in component.weights().values()]
    stage.infer_up({"s": batch(1)[0]}, 1, 0)
    after = [value for component in stage.components for value in component.weights().values()]
    assert all(torch.equal(left, right) for left, right in zip(before, after, strict=True))
    stage.evaluation_mode(False)
    assert all(module.training for component in stage.components for module in component.modules())


def test_an_evaluation_between_mini_batches_does_not_change_the_training(make_network):
    network = make_network()
    ends = []
    for evaluates in (False, True):
        stage = work_of([network.component(index, "cpu") for index in range(2)])
        for step in range(1, 4):
            s, labels = batch(step)
            forward(stage, {"s": s, "labels": labels}, step)
            backward(stage)
            stage.update(0.01, step=step)
            if evaluates:
                stage.evaluation_mode(True)
                stage.infer_up({"s": s}, step, 0)
                stage.evaluation_mode(False)
        ends.append([value for component in stage.components for value in component.weights().values()])
    assert all(torch.equal(left, right) for left, right in zip(*ends, strict=True))


def test_float64_runs_in_float64(make_network):
    network = make_network("run.precision=float64")
    stage = work_of([network.component(index, "cpu") for index in range(2)])
    s, labels = batch(1)
    passed_on = forward(stage, {"s": s.double(), "labels": labels}, 1)
    assert {value.dtype for value in passed_on.values()} == {torch.float64}
    assert all(loss.dtype == torch.float64 for named in backward(stage).values() for loss in named.values())


class Readings(TorchDispatchMode):
    """Counts how often the host reads a number of a tensor: on a GPU, how often it waits."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def test_all_losses_of_a_mini_batch_are_read_at_once():
    losses = {0: {"associated": torch.tensor(0.1), "autoencoder": torch.tensor(2.0, dtype=torch.float64)}}
    losses |= {1: {"associated": torch.tensor(0.3).to(torch.bfloat16)}}
    expected = {index: {name: float(loss) for name, loss in named.items()} for index, named in losses.items()}
    with Readings() as readings:
        assert finite_values(losses, 1) == expected
    assert readings.count <= 1
    with Readings() as readings:
        assert all_finite([torch.tensor(1.0)] * 5) and not all_finite([torch.tensor(1.0), torch.tensor(math.nan)])
    assert readings.count <= 2
    losses[1]["associated"] = torch.tensor(math.inf)
    with pytest.raises(NonFiniteLoss, match="component 1: the associated loss is inf at mini-batch 7"):
        finite_values(losses, 7)
    with pytest.raises(NonFiniteLoss, match="of one sample; a loss that compares samples needs two"):
        finite_values(losses, 7, 1)
    assert finite_values({}, 1) == {}
