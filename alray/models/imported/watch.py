"""What `forward` does in Python besides tensor operations: contexts, draws, and changes of state."""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from types import FrameType
from typing import Any

import numpy
import torch
from torch import nn

from alray.config.user_code import own_place_of
from alray.core.accelerator import kinds
from alray.core.errors import FAULTS_OF_USER_CODE

_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout, Enum)


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
