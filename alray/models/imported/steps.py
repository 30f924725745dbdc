"""Steps: what a run of a model's `forward` consists of, and how they are found again in another run.

A step is a call of a module, or of a function of torch in the code of a module. Its key is that of the call around it,
then its name and its number within that call. So keys do not shift where other calls are left out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from alray.core.compat import pop_mode, tree_flatten
from alray.models.imported.absent import Form

Key = tuple[tuple[str, int], ...]
"""Names and numbers of the calls around a step, then its own. A module has its path, a function a name that ends in
`()`."""
Leaf = tuple[Key, int]
"""A tensor: the step that gave it, and its number among what that gave."""
INPUT: Key = (("", 0),)
"""What `forward` was given stands among the steps as the first one."""
RESULT: Key = ()
"""What `forward` gives is what the call around all steps gives."""
POSITIONS: Key = (("", 1),)
"""How many positions the samples of a mini-batch have, among the numbers that are read."""
READS = frozenset({"__bool__", "__float__", "__index__", "__int__", "item"})
"""Functions that make a number of a tensor."""
LOOKS = READS | {"allclose", "equal", "numpy", "tolist"}
"""Functions by which Python sees values of a tensor."""
_OF_SIZES = frozenset(
    {
        "__format__",
        "__get__",
        "__hash__",
        "__len__",
        "__repr__",
        "__set__",
        "data_ptr",
        "dim",
        "element_size",
        "get_device",
        "is_complex",
        "is_contiguous",
        "is_floating_point",
        "is_same_size",
        "is_signed",
        "ndimension",
        "numel",
        "register_hook",
        "requires_grad_",
        "size",
        "storage_offset",
        "stride",
        "type",
        "untyped_storage",
    }
)
"""Functions that are no steps: they need no values."""


def name_of(key: Key) -> str:
    """The step as a user names it: `layer1.0`; `layer1.0.relu_1`, the second call of a module or function there."""
    parts: list[str] = []
    around = ""
    for name, number in key:
        own = name.removeprefix(f"{around}.") if around else name
        parts.append(own.removesuffix("()") + (f"_{number}" if number else ""))
        around = name
    return ".".join(parts)


class Walk(ABC):
    """A run of `forward` that is told of each step."""

    def __init__(self) -> None:
        self.watching = True
        """Whether it is told; in a module in which no cut lies it is not."""
        self.calls: Key = ()
        """The calls that are open."""
        self._counts: dict[Key, dict[str, int]] = {}
        self._mode = _Functions(self)

    @abstractmethod
    def call(self, key: Key, module: nn.Module, compute: Callable[[], Any]) -> Any:
        """What a call of a module gives."""

    @abstractmethod
    def function(self, key: Key, name: str, given: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
        """What a call of a function gives.

        Args:
            given: its arguments by place and by name.
        """

    def key(self, name: str) -> Key:
        """The key of the next step of this name."""
        counts = self._counts.setdefault(self.calls, {})
        number = counts.get(name, 0)
        counts[name] = number + 1
        return (*self.calls, (name, number))

    @contextmanager
    def inside(self, key: Key) -> Iterator[None]:
        """Within it, steps belong to this call."""
        around, self.calls = self.calls, key
        try:
            yield
        finally:
            self.calls = around

    @contextmanager
    def unwatched(self) -> Iterator[None]:
        """Within it, nothing is told."""
        self.watching = False
        try:
            with pop_mode():
                yield
        finally:
            self.watching = True

    @contextmanager
    def over(self, model: nn.Module) -> Iterator[None]:
        """Within it, `forward` of each module below `model` tells of its calls. Whatever `forward` leaves behind of
        contexts of torch is put back."""
        doors = [(module, path, vars(module).get("forward")) for path, module in model.named_modules() if path]
        gradients = torch.is_grad_enabled()
        for module, path, _ in doors:
            vars(module)["forward"] = partial(self._through_door, module, path, module.forward)
        try:
            with without_fused_attention(), self._mode:
                yield
        finally:
            torch.set_grad_enabled(gradients)
            for module, _, own in doors:
                del vars(module)["forward"]
                if own is not None:
                    vars(module)["forward"] = own

    def _through_door(
        self, module: nn.Module, path: str, forward: Callable[..., Any], /, *given: Any, **named: Any
    ) -> Any:
        """What stands in place of a module's `forward`."""
        if not self.watching:
            return forward(*given, **named)
        return self.call(self.key(path), module, partial(forward, *given, **named))


@contextmanager
def without_fused_attention() -> Iterator[None]:
    """Within it torch does not take its fast path of attention, which hands on tensors of another kind and calls no
    inner modules."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


class _Functions(TorchFunctionMode):
    def __init__(self, walk: Walk) -> None:
        super().__init__()
        self._walk = walk

    def __torch_function__(
        self, func: Any, types: Collection[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if not name or name in _OF_SIZES:
            return func(*args, **kwargs)
        key = self._walk.key(f"{name}()")
        return self._walk.function(key, name, (args, kwargs), lambda: func(*args, **kwargs))


class Size(NamedTuple):
    """A size of a tensor for any number of samples N, and of texts of positions T."""

    factor: int
    by_samples: bool = False
    by_positions: bool = False
    more: int = 0

    def at(self, samples: int, positions: int) -> int:
        return self.factor * (samples if self.by_samples else 1) * (positions if self.by_positions else 1) + self.more


@dataclass(frozen=True)
class Sizes:
    """The form of a tensor for any number of samples and positions.

    Attributes:
        order: its dimensions, as they lie in memory from the largest stride to the smallest.
    """

    sizes: tuple[Size, ...]
    order: tuple[int, ...]
    dtype: torch.dtype

    def at(self, samples: int, positions: int, like: torch.dtype) -> Form:
        """
        Args:
            like: the type in which the model computes, where that is float64.
        """
        shape = tuple(size.at(samples, positions) for size in self.sizes)
        strides, stride = [0] * len(shape), 1
        for axis in reversed(self.order):
            strides[axis] = stride
            stride *= max(shape[axis], 1)
        in_double = self.dtype == torch.float32 and like == torch.float64  # it was recorded in float32
        return Form(shape, tuple(strides), like if in_double else self.dtype)

    @property
    def rows(self) -> int | None:
        """The first dimension that counts samples, or so many rows of each. None: there is none."""
        return next((axis for axis, size in enumerate(self.sizes) if size.by_samples and not size.more), None)

    @property
    def has_several_rows(self) -> bool:
        """Whether this dimension has more than one row of each sample."""
        return self.rows is not None and self.sizes[self.rows] != Size(1, by_samples=True)


@dataclass(frozen=True)
class Gives:
    """What a step gives: its leaves, of tensors their `Sizes` or, in one recording, their `Form`; and their tree."""

    leaves: tuple[Any, ...]
    tree: Any

    @classmethod
    def of(cls, value: Any) -> Gives:
        leaves, tree = tree_flatten(value)
        return cls(tuple(Form.of(each) if isinstance(each, torch.Tensor) else each for each in leaves), tree)


def fitted(one: Gives, other: Gives, sizes: tuple[int, int], of_other: tuple[int, int]) -> Gives | None:
    """What a step gives for any mini-batch, as two of other sizes show it. None: they do not agree.

    Args:
        sizes: N and T of one, and `of_other` of the other.
    """
    if one.tree != other.tree:
        return None
    leaves: list[Any] = []
    for leaf, beside in zip(one.leaves, other.leaves, strict=True):
        if isinstance(leaf, Form) and isinstance(beside, Form) and len(leaf.shape) == len(beside.shape):
            found = [_size(pair, sizes, of_other) for pair in zip(leaf.shape, beside.shape, strict=True)]
            if leaf.dtype != beside.dtype or None in found:
                return None
            leaves.append(Sizes(tuple(each for each in found if each is not None), order_of(leaf), leaf.dtype))
        elif isinstance(leaf, Form) or not is_equal(leaf, beside):
            return None
        else:
            leaves.append(leaf)
    return Gives(tuple(leaves), one.tree)


def is_equal(leaf: Any, other: Any) -> bool:
    """Whether two leaves that are no tensors are."""
    return leaf is other or (type(leaf) is type(other) and bool(leaf == other))


def order_of(form: Form) -> tuple[int, ...]:
    """The dimensions of a tensor, from the largest stride to the smallest."""
    longer = [axis for axis, size in enumerate(form.shape) if size > 1]  # of others the strides mean nothing
    by_stride = sorted(longer, key=lambda axis: (-form.stride[axis], axis))
    axes = tuple(range(len(form.shape)))
    return axes if by_stride == longer else (*(axis for axis in axes if axis not in longer), *by_stride)


def _size(pair: tuple[int, int], sizes: tuple[int, int], of_other: tuple[int, int]) -> Size | None:
    one, other = pair
    if one == other:
        return Size(one)
    samples, positions = Size(1, by_samples=True), Size(1, by_positions=True)
    both = Size(1, by_samples=True, by_positions=True)
    products = [size._replace(factor=one // size.at(*sizes)) for size in (samples, positions, both)]
    sums = [size._replace(more=one - size.at(*sizes)) for size in (positions, samples)]
    fits = (size for size in (*products, *sums) if (size.at(*sizes), size.at(*of_other)) == pair)
    return next(fits, None)


def is_open(key: Key, ends: Sequence[Key]) -> bool:
    """Whether one of these steps lies in this call."""
    return any(len(end) > len(key) and end[: len(key)] == key for end in ends)
