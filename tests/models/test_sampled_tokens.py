"""The cross-entropy that some tokens estimate."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional

from alray.parts.methods.associated_learning.method import sampled_cross_entropy

V = 6


@pytest.fixture
def codes() -> torch.Tensor:
    return torch.randn(2, 3, 4, dtype=torch.float64)


@pytest.fixture
def layer() -> nn.Linear:
    return nn.Linear(4, V).double()


@pytest.fixture
def targets() -> torch.Tensor:
    return torch.tensor([[0, 1, 5], [2, 2, 4]])


def test_with_all_tokens_it_is_the_cross_entropy_and_so_are_its_gradients(codes, layer, targets) -> None:
    found, wanted = [], []
    for loss, gradients in (
        (lambda: sampled_cross_entropy(codes, targets, layer, torch.randperm(V)), found),
        (lambda: functional.cross_entropy(layer(codes).flatten(0, 1), targets.flatten()), wanted),
    ):
        layer.zero_grad()
        value = loss()
        value.backward()
        gradients += [value.detach(), *(parameter.grad.clone() for parameter in layer.parameters())]
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_the_estimated_sum_is_right_in_the_mean(codes, layer, targets) -> None:
    """Over all sets of three tokens without the target; it is the sum that has no bias, not its logarithm."""
    code, target = codes[:1, :1], targets[:1, :1]
    scores = layer(code)[0, 0]
    others = [token for token in range(V) if token != int(target)]
    sums = [
        torch.exp(sampled_cross_entropy(code, target, layer, torch.tensor(chosen)) + scores[int(target)])
        for chosen in itertools.combinations(others, 3)
    ]
    torch.testing.assert_close(torch.stack(sums).mean(), scores.exp().sum())


def test_a_target_among_the_tokens_is_not_counted_twice(codes, layer, targets) -> None:
    code, target = codes[:1, :1], targets[:1, :1]
    without = sampled_cross_entropy(code, target, layer, torch.tensor([1, 3]))
    torch.testing.assert_close(sampled_cross_entropy(code, target, layer, torch.tensor([1, 0, 3])), without)
