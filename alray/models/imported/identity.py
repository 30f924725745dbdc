"""The identity of a module that a Python program gives: equal for equal objects, also in another process."""

from __future__ import annotations

import enum
import functools
import hashlib
import sys
from collections.abc import Iterator, Mapping, Set
from pathlib import PurePath
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import numpy
import torch
from torch import nn

from alray.config.user_code import is_users

_OF_TORCH = frozenset(vars(nn.Module()))
"""What every module has; hooks are added by name."""
_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
_PLAIN = (bool, int, float, complex, str, bytes, type(None), PurePath, torch.dtype, torch.device)
_ENCODING = ("utf-8", "surrogatepass")


def module_sha256(module: nn.Module) -> str:
    """SHA-256 of a module: of its parts the classes, their attributes, and the code of classes and functions that are
    not installed, as this version of Python compiles it; of its weights and buffers names, types, values, and whether
    they are trained. Of other objects in it only the class is known."""
    found = hashlib.sha256()
    for name, part in module.named_modules():
        kept = {key: value for key, value in vars(part).items() if key not in _OF_TORCH}
        hooks = [list(vars(part)[key].values()) for key in _HOOKS]
        found.update("\n".join((name, _class(type(part), ()), _text(kept, ()), _text(hooks, ()))).encode(*_ENCODING))
    trained = {name for name, each in module.named_parameters(remove_duplicate=False) if each.requires_grad}
    for tensors in (module.named_parameters, module.named_buffers):
        for name, value in tensors(remove_duplicate=False):
            found.update(f"{name} {name in trained} {_tensor(value)}\n".encode())
    return found.hexdigest()


def _text(value: Any, around: tuple[int, ...]) -> str:
    """What a value holds, as a text without addresses.

    Args:
        around: of the values that hold it: one may hold itself.
    """
    if id(value) in around:
        return "..."
    around = (*around, id(value))
    match value:
        case enum.Enum():
            return f"{_name(type(value))}.{value.name}"
        case _ if isinstance(value, _PLAIN):
            return f"{type(value).__name__} {value!r}"
        case torch.Tensor():
            return _tensor(value)
        case numpy.ndarray() | numpy.generic() if value.dtype.kind in "biuf":
            return _tensor(torch.as_tensor(value))
        case tuple() | list():
            return f"{type(value).__name__}[{', '.join(_text(each, around) for each in value)}]"
        case Mapping():
            entries = sorted(f"{_text(key, around)}: {_text(each, around)}" for key, each in value.items())
            return f"{{{', '.join(entries)}}}"
        case Set():
            return f"{{{', '.join(sorted(_text(each, around) for each in value))}}}"
        case functools.partial():
            return _text((value.func, value.args, value.keywords), around)
        case MethodType():
            return _text(value.__func__, around)
        case FunctionType():
            return _function(value, around)
        case type():
            return _name(value)
        case _ if hasattr(value, "__qualname__"):  # a function of C
            return _name(value)
        case nn.Module():
            return _name(type(value))
    of_users = _is_users(type(value)) and hasattr(value, "__dict__")
    return f"{_class(type(value), around)} {_text(vars(value), around)}" if of_users else _name(type(value))


def _name(value: Any) -> str:
    return str(value.__qualname__)


def _tensor(value: torch.Tensor) -> str:
    flat = value.detach().cpu().contiguous().flatten().view(torch.uint8)
    return f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(flat.numpy().data).hexdigest()}"


def _class(kind: type, around: tuple[int, ...]) -> str:
    """The name of a class, and what the classes that are not installed define."""
    return "\n".join(
        [_name(kind), *(line for each in kind.__mro__ if _is_users(each) for line in _defined(each, around))]
    )


def _defined(kind: type, around: tuple[int, ...]) -> Iterator[str]:
    for name, value in sorted(vars(kind).items()):
        inner = getattr(value, "fget", getattr(value, "__func__", value))  # of a property, a static or a class method
        if isinstance(inner, FunctionType) or not name.startswith("__"):
            yield f"{name} = {_text(inner, around)}"


def _function(function: FunctionType, around: tuple[int, ...]) -> str:
    if not _is_users(function):
        return _name(function)
    names = function.__code__.co_freevars
    closed = zip(names, function.__closure__ or (), strict=True)
    cells = [_held(cell) for name, cell in closed if name != "__class__"]
    held = _text((function.__defaults__, function.__kwdefaults__, cells), around)
    return f"{_name(function)} {_code(function.__code__)} {held}"


def _held(cell: CellType) -> Any:
    """What a variable of an enclosing function holds; None where it was deleted, or has no value yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _code(code: CodeType) -> str:
    constants = [_code(each) if isinstance(each, CodeType) else _text(each, ()) for each in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"


def _is_users(value: Any) -> bool:
    """Whether a class or a function is neither installed nor part of Python; a pickle may bring it without its
    module."""
    module = sys.modules.get(value.__module__ or "builtins")
    return module is None or module.__name__ == "__main__" or is_users(module)
