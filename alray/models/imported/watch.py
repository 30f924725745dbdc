"""What `forward` does in Python, which a trace of tensor operations would lose: contexts, draws, and changes of state.

A trace holds the operations on what its input gave. Everything else happens once, while it is traced: a number that is
drawn becomes a constant, a counter stands still, `torch.autocast` is forgotten.
"""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from types import FrameType
from typing import Any

import numpy
import torch
from torch import nn

from alray.config.user_code import own_place_of
from alray.core.accelerator import kinds
from alray.core.compat import TorchDispatchMode, is_fwd_grad_enabled, tree_leaves
from alray.core.errors import FAULTS_OF_USER_CODE

_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout, Enum)


class LostError(Exception):
    """`forward` does something in Python that a trace would lose. The text says what, after "it"."""


def settings() -> dict[str, object]:
    """What contexts of torch change and a trace cannot enter again, by the words for it in a message."""
    cuda = torch.backends.cuda
    attention = (cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled())
    return {
        "torch.inference_mode()": torch.is_inference_mode_enabled(),
        "the gradient of a torch.autograd.Function": not is_fwd_grad_enabled(),
        "torch.autocast": [
            torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None for device in kinds()
        ],
        "another default type": torch.get_default_dtype(),
        "a choice of attention kernels": attention,
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
    }


@contextmanager
def autocast(*, enabled: bool) -> Iterator[None]:
    """Inside, mixed precision is on or off for every kind of device, of this machine or not."""
    before = {device: torch.is_autocast_enabled(device) for device in kinds()}
    try:
        for device in before:
            torch.set_autocast_enabled(device, enabled)
        yield
    finally:
        for device, was in before.items():
            torch.set_autocast_enabled(device, was)


def context_since(before: Mapping[str, object]) -> str | None:
    """What `forward` does where a context of torch is open that was not open before; None: no such one is."""
    for what, value in settings().items():
        if value != before[what]:
            return f"computes under {what}" if value else f"ends {what} of its caller"
    return None


class Watch(TorchDispatchMode):
    """Raises LostError where torch computes, while a model is traced, what is not made of its input alone: it draws
    numbers, writes into a tensor that was there before, or reads the values of weights and buffers."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._state = {_memory(each) for each in (*model.parameters(), *model.buffers())}
        self._made: dict[int, torch.Tensor] = {}  # keeps them, so that no other tensor gets their memory

    def __torch_dispatch__(
        self, func: Any, types: Collection[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise LostError("draws random numbers that are not made of its input")
        if any(_memory(each) in self._state for each in _tensors((args, kwargs))):
            raise LostError("computes with the values of weights or buffers, out of reach of a trace")
        for number, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                given = args[number] if number < len(args) else kwargs.get(argument.name)
                if any(_memory(each) not in self._made for each in _tensors(given)):
                    raise LostError("writes into a tensor that lasts from one call to the next")
        result = func(*args, **kwargs)
        self._made |= {_memory(each): each for each in _tensors(result)}
        return result


_READING = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)
"""Operations that make a number or a bool of values."""


_BY_SHAPE = frozenset(
    operation.default
    for operation in (
        torch.ops.aten.empty_like,
        torch.ops.aten.full_like,
        torch.ops.aten.new_empty,
        torch.ops.aten.new_full,
        torch.ops.aten.new_ones,
        torch.ops.aten.new_zeros,
        torch.ops.aten.ones_like,
        torch.ops.aten.zeros_like,
    )
)
"""Operations whose results do not depend on the values of what they are given."""


class MadeOfSamples(TorchDispatchMode):
    """Knows which tensors are made of the values of samples. Raises LostError where Python asks for such a value."""

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[int, torch.Tensor] = {}  # keeps them, so that no other tensor gets their memory

    def watched(self, samples: torch.Tensor) -> torch.Tensor:
        """These samples, whose values count from now on."""
        self._made[_memory(samples)] = samples
        return samples

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return _memory(tensor) in self._made

    def __torch_dispatch__(
        self, func: Any, types: Collection[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        of_samples = any(each in self for each in _tensors((args, kwargs)))
        if of_samples and func in _READING:
            raise LostError("reads the values of its samples, which only the first part gets")
        result = func(*args, **kwargs)
        if of_samples and func not in _BY_SHAPE:
            self._made |= {_memory(each): each for each in _tensors(result)}
        return result


def _tensors(values: Any) -> Iterable[torch.Tensor]:
    return (each for each in tree_leaves(values) if isinstance(each, torch.Tensor))


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


# --- State: attributes, and the generators of random numbers ---


def draws_so_far() -> bytes:
    """The state of all global generators."""
    of_torch = torch.random.get_rng_state().numpy().tobytes()
    return pickle.dumps((random.getstate(), numpy.random.get_state(legacy=False), of_torch))


def attributes(module: nn.Module, *, buffers: bool = True) -> dict[str, object]:
    """The attributes of a module itself, in a form that is equal as long as none is changed.

    Args:
        buffers: whether its buffers count, too: not their values, but whether there is another one.
    """
    of_torch = type(module).__module__.startswith("torch.")
    seen: dict[int, Any] = {id(module): module}
    kept = {
        name: _frozen(value, seen)
        for name, value in vars(module).items()
        # Old ways of parametrisation keep the weight that they have computed as an attribute of torch's layer.
        if name not in ("_parameters", "_buffers", "_modules", "training")
        and not name.startswith(("_forward", "_backward", "_state_dict", "_load_state", "_non_persistent"))
        and not (of_torch and isinstance(value, torch.Tensor))
    }
    return kept | ({name: id(value) for name, value in module._buffers.items()} if buffers else {})


def changed(before: Mapping[str, object], module: nn.Module, *, buffers: bool = True) -> list[str]:
    """The attributes of a module that have changed since `attributes` gave `before`."""
    after = attributes(module, buffers=buffers)
    return [name for name in {**before, **after} if before.get(name, ...) != after.get(name, ...)]


def _frozen(value: Any, seen: dict[int, Any]) -> object:
    """
    Args:
        seen: by their identities, the values that have been frozen before this one, and those that hold it.
    """
    if isinstance(value, _PLAIN):
        return value if value == value else repr(value)  # NaN is not equal to itself
    if id(value) in seen:  # or the time would grow with the number of ways to it
        return id(value)
    seen[id(value)] = value
    if isinstance(value, torch.Tensor):
        return (id(value), value._version)
    if isinstance(value, nn.Module):
        return id(value)
    if isinstance(value, Mapping):
        return [(_frozen(key, seen), _frozen(each, seen)) for key, each in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [type(value), *(_frozen(each, seen) for each in value)]
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes()
    if isinstance(value, numpy.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, numpy.ndarray):
        return (value.dtype, value.shape, value.tobytes())
    if callable(value) or isinstance(value, type):
        return id(value)
    if hasattr(value, "__dict__"):
        return [id(value), *_frozen_items(vars(value), seen)]
    return (id(value), repr(value))  # an iterator of itertools shows its state


def _frozen_items(values: Mapping[str, Any], seen: dict[int, Any]) -> list[object]:
    return [(name, _frozen(each, seen)) for name, each in values.items()]


def line_of_change(compute: Callable[[], object], has_changed: Callable[[], object]) -> tuple[str, int] | None:
    """File and line of the user's statement that changes something while `compute` runs. None: no statement of theirs.

    Args:
        has_changed: whether it has; asked after each of these statements.
    """
    found: list[tuple[str, int]] = []
    lines: dict[FrameType, int] = {}

    def in_frame(frame: FrameType, event: str, argument: object) -> Any:
        if not found and frame in lines and event in ("line", "return", "exception") and has_changed():
            found.append((frame.f_code.co_filename, lines[frame]))
        lines[frame] = frame.f_lineno
        return None if found else in_frame

    def at_call(frame: FrameType, event: str, argument: object) -> Any:
        return None if found or not own_place_of(frame.f_code) else in_frame

    around = sys.gettrace()
    sys.settrace(at_call)
    try:
        with suppress(FAULTS_OF_USER_CODE):  # what is looked for may be why it fails
            compute()
    finally:
        sys.settrace(around)
        lines.clear()
    return found[0] if found else None
