"""Tensors without values: what each operation makes of them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from alray.models.imported.absent import Form, LostError, Unused, counting, origins_of

Compute = Callable[[Unused, Unused, torch.Tensor], object]
_CPU = torch.device("cpu")


_LIBRARY = torch.library.Library("alray_tests", "FRAGMENT")
_LIBRARY.define("shifted_like(Tensor x) -> Tensor")
_LIBRARY.impl("shifted_like", lambda x: x + 1.0, "CompositeExplicitAutograd")


def unused(name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Unused:
    return Unused.like(Form.of(torch.zeros(shape, dtype=dtype)), [(name, 0)], _CPU)


@pytest.mark.parametrize(
    ("compute", "shape", "names"),
    [
        (lambda a, b, real: a + b, (4, 6), "ab"),
        (lambda a, b, real: real * a, (4, 6), "a"),
        (lambda a, b, real: a.view(2, 12).T, (12, 2), "a"),
        (lambda a, b, real: functional.layer_norm(a, (6,)), (4, 6), "a"),
        (lambda a, b, real: functional.linear(real, a), (4, 4), "a"),
        (lambda a, b, real: a[:, ::2].sum(1), (4,), "a"),
        (lambda a, b, real: torch.cat([real, b, a], 1), (4, 18), "ab"),
        (lambda a, b, real: a.add_(b), (4, 6), "ab"),
        (lambda a, b, real: torch.where(a > 0, b, real), (4, 6), "ab"),
        (lambda a, b, real: torch.empty_like(a), (4, 6), "a"),
        (lambda a, b, real: torch.ops.alray_tests.shifted_like(a), (4, 6), "a"),
        (lambda a, b, real: a.chunk(2, 1)[1], (4, 3), "a"),
        (lambda a, b, real: a.long(), (4, 6), "a"),
        (lambda a, b, real: a.max(1).indices, (4,), "a"),
        (lambda a, b, real: functional.scaled_dot_product_attention(a, b, real), (4, 6), "ab"),
        (lambda a, b, real: a[torch.tensor([0, 2])], (2, 6), "a"),
    ],
)
def test_what_is_made_of_a_tensor_without_values_has_none(compute: Compute, shape: tuple[int, ...], names: str) -> None:
    found = compute(unused("a", 4, 6), unused("b", 4, 6), torch.ones(4, 6))
    assert isinstance(found, Unused) and tuple(found.shape) == shape and found.device == _CPU
    assert {name for name, _ in origins_of([found])} == set(names)


@pytest.mark.parametrize(
    "compute",
    [
        lambda a, b, real: torch.zeros_like(a) + 1,
        lambda a, b, real: torch.ones_like(a),
        lambda a, b, real: torch.full_like(a, 1.0),
        lambda a, b, real: a.new_ones(4, 6),
        lambda a, b, real: torch.ones(a.shape, dtype=a.dtype, device=a.device),
    ],
)
def test_what_is_made_of_its_sizes_alone_has_values(compute: Compute) -> None:
    found = compute(unused("a", 4, 6), unused("b", 4, 6), torch.ones(4, 6))
    assert not isinstance(found, Unused) and torch.equal(found, torch.ones(4, 6))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "compute",
    [
        lambda a, b, real: bool(a.sum() > 0),
        lambda a, b, real: a.sum().item(),
        lambda a, b, real: float(a[0, 0]),
        lambda a, b, real: a.tolist(),
        lambda a, b, real: a.numpy(),
        lambda a, b, real: real[a > 0],
        lambda a, b, real: torch.nonzero(a),
        lambda a, b, real: torch.unique(a),
        lambda a, b, real: torch.equal(a, real),
        lambda a, b, real: torch.masked_select(real, a > 0),
        lambda a, b, real: real.add_(a),
        lambda a, b, real: real.copy_(a),
        lambda a, b, real: torch.add(real, real, out=real).mul_(a),
        lambda a, b, real: real.repeat_interleave(a.sum(1).long(), 0),
    ],
)
def test_who_needs_a_value_learns_whose(compute: Compute) -> None:
    with pytest.raises(LostError) as caught:
        compute(unused("a", 4, 6), unused("b", 4, 6), torch.ones(4, 6))
    assert caught.value.origins == {("a", 0)}


@pytest.mark.parametrize("again", [copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))])
def test_a_copy_is_one_too(again: Callable[[Unused], Unused]) -> None:
    a = unused("a", 4, 6).T
    found = again(a)
    assert isinstance(found, Unused) and (found.shape, found.stride()) == (a.shape, a.stride())
    assert found.origins == a.origins
    moved = found.to("meta", torch.float64)
    assert isinstance(moved, Unused) and moved.device.type == "meta" and moved.dtype == torch.float64


@pytest.mark.parametrize(
    ("compute", "shape"),
    [
        (lambda a, real: a * real, (4, 6)),
        (lambda a, real: a + 1 if bool((a > 0).all()) else a[0], (4, 6)),
        (lambda a, real: a[a[:, 0] > 0], (4, 6)),
        (lambda a, real: a.index_add(0, torch.where(a[:, 0] > 0)[0], a), (4, 6)),
        (lambda a, real: a.cumsum(0).add_(real), (4, 6)),
        (lambda a, real: a * float(a.detach().cpu().numpy().mean()), (4, 6)),
        (lambda a, real: a[: len(a.sum(1).tolist())], (4, 6)),
        (lambda a, real: torch.from_numpy(real.numpy()) @ a.T, (4, 4)),
    ],
)
def test_where_operations_are_counted_values_are_ones(
    compute: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], shape: tuple[int, ...]
) -> None:
    real = torch.ones(4, 6)
    with counting():
        a = torch.zeros(4, 6, requires_grad=True)
        found = compute(a, real)
        found.sum().backward()
    assert found.is_meta and tuple(found.shape) == shape and a.grad is not None and a.grad.is_meta
    with counting(), pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        torch.zeros(4, 6) @ torch.zeros(4, 6)
