"""Tensors without values: they stand for what another part of a model has computed.

`forward` of a model runs in each of its parts. What a part neither computed nor got is an `Unused` there: it has sizes,
a type and a device, and operations on it give further ones. Whoever needs a value of it raises `LostError`, at any
mini-batch, where a zero would be silently wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from alray.core.compat import TorchDispatchMode, no_torch_function, tree_leaves, tree_map

Origin = tuple[Any, int | None]
"""The key of the step that gave a tensor, and the number of the tensor among what it gave. None: nothing that a message
could bring, such as a parameter, with its name as the key."""
_aten = torch.ops.aten
_READ = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
"""How torch marks operations of which what they give, or its sizes, depends on values."""
_PACKS = _aten._pack_padded_sequence.default  # reads lengths, without such a mark
_BY_INDEX = (_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default)
_MASKS = (torch.bool, torch.uint8)


class LostError(Exception):
    """A part needs values that it neither computed nor got. The text says what asks for them, after "it"."""

    def __init__(self, origins: Iterable[Origin], what: str) -> None:
        super().__init__(what)
        self.origins = frozenset(origins)


class Form(NamedTuple):
    """What a tensor is but for its values."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Form:
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype)


class Unused(torch.Tensor):
    """A tensor without values.

    Attributes:
        meta: the same tensor on the meta device, which knows sizes, strides and views.
        origins: what it is made of; of nothing, it stands for one with values, as in a trial of a cut.
    """

    meta: torch.Tensor
    origins: frozenset[Origin]
    __torch_function__ = no_torch_function

    @staticmethod
    def __new__(cls, meta: torch.Tensor, origins: Iterable[Origin], device: torch.device) -> Unused:
        made: Unused = torch.Tensor._make_wrapper_subclass(
            cls, meta.shape, strides=meta.stride(), dtype=meta.dtype, device=device, requires_grad=False
        )
        made.meta, made.origins = meta, frozenset(origins)
        return made

    @classmethod
    def like(cls, form: Form, origins: Iterable[Origin], device: torch.device) -> Unused:
        """A tensor of this form, made of these."""
        return cls(torch.empty_strided(form.shape, form.stride, dtype=form.dtype, device="meta"), origins, device)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"Unused({tuple(self.shape)}, {self.dtype})"

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self.like, (Form.of(self.meta), self.origins, self.device)

    def tolist(self) -> Any:
        raise LostError(self.origins, "reads the values of a tensor by `tolist`")

    def numpy(self, *, force: bool = False) -> Any:
        raise LostError(self.origins, "reads the values of a tensor by `numpy`")

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Collection[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        unused = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Unused)]
        origins = frozenset[Origin]().union(*(each.origins for each in unused))
        name = func._schema.name.removeprefix("aten::").replace("_local_scalar_dense", "item")
        by_sizes = func.namespace == "aten" and (name.endswith("_like") or name.startswith("new_"))
        if by_sizes and "empty" not in name:
            like = args[0]
            real = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
            return func(real, *args[1:], **kwargs)
        reads = func is _PACKS or not _READ.isdisjoint(func.tags)
        if func in _BY_INDEX:
            reads = any(each is not None and each.dtype in _MASKS for each in args[1])
        if reads:
            raise LostError(origins, f"reads the values of a tensor by `{name}`")
        if _writes_real(func, args, kwargs, lost=bool(origins)):
            raise LostError(origins, f"writes into a tensor by `{name}`")
        device = unused[0].device
        if kwargs.get("device") is not None:
            device, kwargs = torch.device(kwargs["device"]), {**kwargs, "device": torch.device("meta")}
        of_meta = {id(each.meta): each for each in unused}
        on_meta = tree_map(_without_values, (args, kwargs))
        try:
            gave = func(*on_meta[0], **on_meta[1])
        except (NotImplementedError, RuntimeError) as error:
            if "meta" not in str(error).lower():
                raise
            raise LostError(origins, f"computes `{name}`, whose sizes depend on values") from error

        def wrapped(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            if id(value) in of_meta:  # it was written in place
                same = of_meta[id(value)]
                same.origins |= origins
                return same
            return cls(value, origins, device)

        return tree_map(wrapped, gave)


def origins_of(tree: Any) -> frozenset[Origin]:
    """What the tensors without values among these are made of."""
    return frozenset[Origin]().union(*(each.origins for each in tree_leaves(tree) if isinstance(each, Unused)))


def _without_values(value: Any) -> Any:
    if isinstance(value, Unused):
        return value.meta
    return value.to("meta") if isinstance(value, torch.Tensor) else value


def _writes_real(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, lost: bool) -> bool:
    """Whether an operation writes into a tensor with values.

    Args:
        lost: whether what it writes is made of something; then one of nothing counts as one with values.
    """

    def is_real(value: Any) -> bool:
        return (lost and not value.origins) if isinstance(value, Unused) else isinstance(value, torch.Tensor)

    for number, argument in enumerate(func._schema.arguments):
        if argument.is_write:
            given = args[number] if number < len(args) else kwargs.get(argument.name)
            if any(map(is_real, tree_leaves(given))):
                return True
    return False


@contextmanager
def counting() -> Iterator[None]:
    """Within it tensors are made on the meta device, where operations are counted and sizes found. An operation that
    needs values, as one that reads a number, chooses rows or goes to the CPU, gets ones."""
    with torch.device("meta"), _OfOnes():
        yield


class _OfOnes(TorchDispatchMode):
    """Runs an operation without values, or with ones on the CPU if it needs values."""

    def __torch_dispatch__(
        self, func: Any, types: Collection[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        empty = [each for each in tensors if each.is_meta]
        if not empty or func is _PACKS or any(isinstance(each, Unused) for each in tensors):  # lengths are on the CPU
            return func(*args, **kwargs)

        def of(given: dict[int, torch.Tensor]) -> Any:
            there = tree_map(lambda value: given.get(id(value), value), (args, kwargs))
            return func(*there[0], **there[1])

        try:  # constants have values, and are without them beside others
            return of({id(each): each.to("meta") for each in tensors if not each.is_meta})
        except (NotImplementedError, RuntimeError):
            ones = {id(each): torch.ones(each.shape, dtype=each.dtype, device="cpu") for each in empty}
        gave = of(ones)
        if str(kwargs.get("device")) == "cpu":
            return gave
        written = {id(ones[id(each)]): each for each in empty}
        return tree_map(
            lambda value: written.get(id(value), value.to("meta")) if isinstance(value, torch.Tensor) else value, gave
        )
