"""Batch normalisation over replicas is that of one process on all rows: values, gradients and running statistics."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from alray.core.errors import PlanError
from alray.models.precision import lower
from alray.models.replica_norm import ReplicaBatchNorm, share_norms


class Threads:
    """Replicas that are threads of this process."""

    def __init__(self, count: int) -> None:
        self.barrier = Barrier(count, timeout=30.0)
        self.said: list[torch.Tensor] = [torch.empty(0)] * count

    def member(self, replica: int) -> Member:
        return Member(self, replica)


class Member:
    def __init__(self, threads: Threads, replica: int) -> None:
        self.threads, self.replica = threads, replica

    def gather(self, own: torch.Tensor) -> torch.Tensor:
        self.threads.said[self.replica] = own.clone()
        self.threads.barrier.wait()
        rows = torch.stack(self.threads.said)
        self.threads.barrier.wait()
        return rows

    def sum(self, tensor: torch.Tensor) -> None:
        tensor.copy_(self.gather(tensor).sum(0))


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.BatchNorm1d(16, affine=False)
    ).double()


def loss_of(module: nn.Module, s: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (module(s) - target).square().mean()


@pytest.mark.parametrize("shares", [[6, 6], [1, 4, 7]])
def test_equals_one_process(shares: list[int]) -> None:
    samples, targets = torch.randn(12, 2, 4, 4).double() * 3 + 5, torch.randn(12, 16).double()
    whole = network()
    samples.requires_grad_()
    for _ in range(2):  # a second time, with running statistics that are not the first ones
        whole.zero_grad()
        loss_of(whole, samples, targets).backward()

    threads = Threads(len(shares))
    replicas = [network() for _ in shares]
    names = list(replicas[0].state_dict())

    def train(replica: int) -> torch.Tensor:
        share_norms(replicas[replica], threads.member(replica))
        first = sum(shares[:replica])
        own = samples.detach()[first : first + shares[replica]].requires_grad_()
        for _ in range(2):
            replicas[replica].zero_grad()
            own.grad = None
            loss_of(replicas[replica], own, targets[first : first + shares[replica]]).backward()
        return own.grad * (shares[replica] / 12)

    with ThreadPoolExecutor(len(shares)) as together:
        by_samples = torch.cat(list(together.map(train, range(len(shares)))))

    # The gradient of `samples` was added up over both times.
    torch.testing.assert_close(2 * by_samples, samples.grad, rtol=1e-9, atol=1e-12)
    for index, parameter in enumerate(whole.parameters()):
        averaged = sum(
            share / 12 * list(replica.parameters())[index].grad for share, replica in zip(shares, replicas, strict=True)
        )
        torch.testing.assert_close(averaged, parameter.grad, rtol=1e-9, atol=1e-12)
    for replica in replicas:
        state = replica.state_dict()
        assert list(state) == names
        for name, value in whole.state_dict().items():
            torch.testing.assert_close(state[name], value, rtol=1e-12, atol=1e-12)
            assert torch.equal(state[name], replicas[0].state_dict()[name])


def test_a_large_mean_cancels_nothing() -> None:
    s = torch.randn(64, 3) + 1.0e4
    norm = nn.BatchNorm1d(3)
    share_norms(norm, Threads(1).member(0))
    expected = nn.BatchNorm1d(3).double()(s.double()).float()
    torch.testing.assert_close(norm(s), expected, rtol=1e-2, atol=1e-2)


def test_alone_it_is_torchs_own() -> None:
    s = torch.randn(8, 3, 5).double().requires_grad_()
    plain = nn.BatchNorm1d(3, momentum=None).double()
    shared = nn.Sequential(copy.deepcopy(plain))
    share_norms(shared, Threads(1).member(0))
    weights = torch.randn(8, 3, 5).double()
    expected, result = plain(s), shared(s)
    torch.testing.assert_close(result, expected)
    for mine, theirs in zip(
        torch.autograd.grad((result * weights).sum(), [s, *shared.parameters()]),
        torch.autograd.grad((expected * weights).sum(), [s, *plain.parameters()]),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(shared.state_dict()[f"0.{name}"], value)
    with pytest.raises(RuntimeError, match="trying to differentiate twice"):
        (gradient,) = torch.autograd.grad(shared(s).square().sum(), s, create_graph=True)
        gradient.sum().backward()


def test_in_evaluation_no_replica_waits_for_another() -> None:
    module = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3, track_running_stats=False))
    share_norms(module, Threads(2).member(0))
    assert all(isinstance(part, ReplicaBatchNorm) for part in module)
    module.eval()(torch.randn(4, 3))


def test_a_module_that_is_used_twice_stays_one() -> None:
    norm = nn.BatchNorm1d(3)
    module = nn.Sequential(norm, nn.ReLU(), norm)
    share_norms(module, Threads(1).member(0))
    assert isinstance(module[0], ReplicaBatchNorm) and module[0] is module[2]
    assert module[0].weight is norm.weight and module[0].running_mean is norm.running_mean


class Odd(nn.BatchNorm1d):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2.0 * super().forward(input)


@pytest.mark.parametrize("make", [lambda: Odd(3), lambda: nn.SyncBatchNorm(3)])
def test_one_that_computes_in_its_own_way_is_refused(make: Callable[[], nn.Module]) -> None:
    with pytest.raises(
        PlanError, match=r"replicas\.sync_batch_norm: the batch normalisation `.*` has its own forward pass"
    ):
        share_norms(nn.Sequential(make()), Threads(1).member(0))


def test_one_value_has_no_variance() -> None:
    norm = nn.BatchNorm1d(3)
    share_norms(norm, Threads(1).member(0))
    with pytest.raises(ValueError, match="more than one value per channel"):
        norm(torch.randn(1, 3))
    with pytest.raises(ValueError, match="takes"):
        norm(torch.randn(3))


class Scalars(TorchDispatchMode):
    """Counts the values that the host reads: on a GPU it waits for each."""

    read = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.read += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def test_the_host_waits_for_no_statistics() -> None:
    module = network()
    share_norms(module, Threads(1).member(0))
    with Scalars() as scalars:
        loss_of(module, torch.randn(6, 2, 4, 4).double(), torch.randn(6, 16).double()).backward()
    assert scalars.read == 0


@pytest.mark.parametrize("affine", [True, False])
def test_narrow_maps_are_computed_with_as_torch_does(affine: bool) -> None:
    """In mixed precision a norm gets maps in bfloat16, in which a mean of 20 loses the digits of the deviations."""
    torch.manual_seed(2)
    maps = (torch.randn(64, 8, 8, 8) * 0.5 + torch.linspace(3.0, 20.0, 8).view(8, 1, 1)).bfloat16()
    dy = (torch.randn(64, 8, 8, 8) + 0.3).bfloat16()

    def trained(norm: nn.Module) -> list[torch.Tensor]:
        given = maps.clone().requires_grad_()
        result = norm(given)
        result.backward(dy)
        assert given.grad is not None
        of_weights = [norm.weight.grad, norm.bias.grad] if affine else []
        return [*of_weights, norm.running_mean, norm.running_var, result.detach().float(), given.grad.float()]

    mine, torchs = nn.BatchNorm2d(8, affine=affine), nn.BatchNorm2d(8, affine=affine)
    lower(mine, torch.bfloat16)  # as `run.precision` does with a block that is a norm
    share_norms(mine, Threads(1).member(0))
    for one, other in zip(trained(mine), trained(torchs), strict=True):
        assert one.dtype == other.dtype and (one - other).norm() <= 5e-3 * other.norm()
