"""A component's own optimizers: clipped, at rates of their own, and fixed in how they compute."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from alray.nn.lars import Lars
from alray.nn.optimizers import ComponentOptimizer

from ..mini_batches import forward_step


def spec(kind: str, **values: Any) -> SimpleNamespace:
    defaults = {"lr": 0.1, "weight_decay": 0.0, "clip_norm": None, "momentum": 0.0, "nesterov": False, "accumulate": 1}
    defaults |= {"trust_coefficient": 1e-3, "fused": False}
    return SimpleNamespace(kind=kind, **{**defaults, "betas": (0.9, 0.999), "eps": 1e-8, **values})


def parameter(*values: float, gradient: tuple[float, ...]) -> nn.Parameter:
    made = nn.Parameter(torch.tensor(values))
    made.grad = torch.tensor(gradient)
    return made


def test_gradients_longer_than_clip_norm_are_scaled_down_to_it_over_all_parameters():
    left, right = parameter(0.0, gradient=(3.0,)), parameter(0.0, gradient=(4.0,))
    ComponentOptimizer([left, right], spec("sgd", clip_norm=1.0)).step(1.0)
    torch.testing.assert_close(torch.cat([left, right]).detach(), torch.tensor([-0.6, -0.8]))


def test_gradients_within_clip_norm_are_left_alone():
    one = parameter(0.0, gradient=(0.5,))
    ComponentOptimizer([one], spec("sgd", clip_norm=1.0)).step(1.0)
    assert one.item() == -0.5


def test_the_rate_of_a_step_is_the_one_given():
    one = parameter(0.0, gradient=(1.0,))
    optimizer = ComponentOptimizer([one], spec("sgd", lr=0.1))
    optimizer.step(0.5)
    optimizer.step(0.25)
    assert one.item() == -0.75


@pytest.mark.parametrize("kind", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("fused", [False, True])
def test_how_it_computes_is_fixed(kind, fused):
    optimizer = ComponentOptimizer([parameter(0.0, gradient=(1.0,))], spec(kind, fused=fused))
    optimizer.update_as_on(torch.device("cuda"))  # a kernel for all parameters, by either way
    on_gpu = optimizer.state_dict()["param_groups"][0]
    optimizer.update_as_on(torch.device("cpu"))
    on_cpu = optimizer.state_dict()["param_groups"][0]
    assert [(group["foreach"], group["fused"]) for group in (on_gpu, on_cpu)] == [(not fused, fused), (False, fused)]


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("sgd", {}, torch.optim.SGD),
        ("sgd", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}, torch.optim.SGD),
        ("adam", {"weight_decay": 0.1, "betas": (0.5, 0.9), "eps": 1e-3}, torch.optim.Adam),
        ("adamw", {"weight_decay": 0.1}, torch.optim.AdamW),
        ("lars", {"momentum": 0.5, "weight_decay": 0.1, "trust_coefficient": 0.1, "eps": 0.2}, Lars),
    ],
)
def test_every_value_of_the_spec_reaches_torch(kind, values, expected):
    mine, theirs = (nn.Parameter(torch.tensor([[1.0, -2.0]])) for _ in range(2))
    mine.grad, theirs.grad = (torch.tensor([[0.3, 0.1]]) for _ in range(2))
    optimizer, plain = ComponentOptimizer([mine], spec(kind, **values)), expected([theirs], lr=0.1, **values)
    for _ in range(3):
        optimizer.step(0.1)
        plain.step()
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(
    ("kind", "values", "number"),
    [
        ("sgd", {}, 0),
        ("sgd", {"momentum": 0.9}, 1),
        ("adam", {}, 2),
        ("adamw", {}, 2),
        ("lars", {"momentum": 0.9}, 1),
        ("lars", {}, 0),
    ],
)
def test_the_state_kept_for_each_parameter_is_counted(kind, values, number):
    one = nn.Parameter(torch.zeros(10))
    one.grad = torch.ones(10)
    optimizer = ComponentOptimizer([one], spec(kind, **values))
    optimizer.step(0.1)
    state = optimizer.state_dict()["state"].get(0, {})
    assert sum(value.numel() == 10 for value in state.values() if value is not None) == number
    assert optimizer.state_bytes_per_parameter() == number


def test_state_is_taken_over_but_the_values_of_the_spec_are_not():
    """A resume may have changed them, and on another device `foreach` is another."""
    one = parameter(0.0, gradient=(1.0,))
    before = ComponentOptimizer([one], spec("sgd", momentum=0.9, weight_decay=0.5))
    before.step(0.1)
    state = copy.deepcopy(before.state_dict())
    state["param_groups"][0]["foreach"] = True
    after = ComponentOptimizer([one], spec("sgd", momentum=0.8, weight_decay=0.0))
    after.load_state_dict(state)
    group = after.state_dict()["param_groups"][0]
    assert (group["momentum"], group["weight_decay"], group["foreach"]) == (0.8, 0.0, False)
    assert after.state_dict()["state"][0]["momentum_buffer"].item() == 1.0


def test_the_state_of_another_kind_or_of_other_parameters_is_refused():
    adam = ComponentOptimizer([parameter(0.0, gradient=(1.0,))], spec("adam"))
    with pytest.raises(ValueError, match="the state is that of sgd, the optimizer is adam"):
        adam.load_state_dict(ComponentOptimizer([parameter(0.0, gradient=(1.0,))], spec("sgd")).state_dict())
    two = [parameter(0.0, gradient=(1.0,)) for _ in range(2)]
    with pytest.raises(ValueError, match="size of optimizer's group"):
        adam.load_state_dict(ComponentOptimizer(two, spec("adam")).state_dict())


def test_the_state_of_lars_is_taken_over_by_its_kind():
    one = parameter(0.0, gradient=(1.0,))
    before = ComponentOptimizer([one], spec("lars", momentum=0.9))
    before.step(0.5)
    after = ComponentOptimizer([one], spec("lars", momentum=0.8))
    after.load_state_dict(copy.deepcopy(before.state_dict()))
    after.step(0.0)
    assert one.item() == pytest.approx(-0.5 - 0.8 * 0.5)
    with pytest.raises(ValueError, match="the state is that of lars, the optimizer is sgd"):
        ComponentOptimizer([one], spec("sgd", momentum=0.9)).load_state_dict(before.state_dict())


def test_without_parameters_there_is_nothing_to_do():
    frozen = nn.Parameter(torch.zeros(1), requires_grad=False)
    optimizer = ComponentOptimizer([frozen], spec("adam", clip_norm=1.0))
    optimizer.zero_grad()
    optimizer.step(0.1)
    optimizer.load_state_dict(optimizer.state_dict())
    assert optimizer.state_dict() == {} and optimizer.state_bytes_per_parameter() == 0


def test_label_lr_is_the_rate_of_the_label_chain_alone(make_network):
    component = make_network("optimizer={kind: sgd, lr: 0.1}").component(0, "cpu")
    before = {name: value.clone() for name, value in component.weights().items()}
    forward_step(component, {"s": torch.randn(4, 2, 8, 8), "labels": torch.arange(4)}, 1)
    component.backward_step()
    component.update_step(0.0, 0.1)
    moved = {
        name[0]
        for name, value in component.named_parameters()
        if not torch.equal(value, before[name.replace("f.body.", "f.")])
    }
    assert moved == {"g", "h"}
    forward_step(component, {"s": torch.randn(4, 2, 8, 8), "labels": torch.arange(4)}, 2)
    component.backward_step()
    labels = {name: value.clone() for name, value in component.weights().items() if name[0] in "gh"}
    component.update_step(0.1, 0.0)
    assert all(torch.equal(component.weights()[name], value) for name, value in labels.items())
    assert not torch.equal(component.weights()["f.0.weight"], before["f.0.weight"])
