"""What a module holds, as texts without addresses: equal for equal objects, also in another process."""

from __future__ import annotations

import enum
import functools
import hashlib
import random
import sys
from collections.abc import Iterator, Mapping, Set
from pathlib import PurePath
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import numpy
import torch
from torch import nn

from alray.config.user_code import is_users
from alray.models.imported.calls import named_tensors

_OF_TORCH = frozenset(vars(nn.Module()))
"""What every module has; hooks are added by name."""
_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
_MADE_BY = f"3 {sys.implementation.cache_tag} torch-{torch.__version__.partition('+')[0]}"
"""What hashes depend on besides the module: how they are made, code of Python, and attributes of torch's layers."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None), PurePath, torch.dtype, torch.device)
_ENCODING = ("utf-8", "surrogatepass")
_LONGEST = 1000  # characters of a text that is not hashed: one value may be a part of many


def module_sha256(module: nn.Module, *, values: bool = True) -> str:
    """SHA-256 of a module after what made it, `3 cpython-311 torch-2.9.0:...`.

    It is of its parts the classes, their attributes, and the code of classes and functions that are not installed, as
    this version of Python compiles it; of its weights and buffers names, types, values, and whether they are trained.
    Of other objects in it only the class is known.

    Args:
        values: of weights, buffers and other tensors too; otherwise modules that differ in them alone are equal.
    """
    found = hashlib.sha256()
    texts = _Texts(values=values)
    for name, part in module.named_modules():
        hooks = [list(vars(part)[key].values()) for key in _HOOKS]
        lines = (name, texts.of_class(type(part)), texts.of(_own(part)), texts.of(hooks))
        found.update("\n".join(lines).encode(*_ENCODING))
    trained = {name for name, each in module.named_parameters(remove_duplicate=False) if each.requires_grad}
    for name, value in named_tensors(module):
        found.update(f"{name} {name in trained} {_tensor(value, values=values)}\n".encode())
    return f"{_MADE_BY}:{found.hexdigest()}"


def is_same_module(one: str, other: str) -> bool | None:
    """Whether two hashes are of equal modules. None: they differ, but other versions made them, so it is not known."""
    (by, sha256), (by_other, sha256_other) = (each.rpartition(":")[::2] for each in (one, other))
    return sha256 == sha256_other or (None if by != by_other else False)


def attributes(module: nn.Module) -> dict[str, str]:
    """What the attributes of a module hold by name, without its weights, buffers and submodules. Without tensors of
    torch's own layers too: old ways of parametrisation keep the weight there that they have computed."""
    texts = _Texts(values=True)
    of_torch = type(module).__module__.startswith("torch.")
    return {
        name: texts.of(value)
        for name, value in _own(module).items()
        if not (of_torch and isinstance(value, torch.Tensor))
    }


def _own(module: nn.Module) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if name not in _OF_TORCH}


class _Texts:
    """Says what values hold, as texts without addresses."""

    def __init__(self, *, values: bool) -> None:
        """
        Args:
            values: of tensors too; otherwise their types and shapes alone.
        """
        self._values = values
        self._known: dict[int, tuple[Any, str]] = {}  # by identity, which is one value's as long as that is kept

    def of(self, value: Any) -> str:
        """What a value holds; of much, its hash."""
        if isinstance(value, _PLAIN) and not isinstance(value, enum.Enum):
            return f"{type(value).__name__} {value!r}"
        if id(value) not in self._known:
            self._known[id(value)] = value, "..."  # it may hold itself
            text = self._held(value)
            if len(text) > _LONGEST:
                text = hashlib.sha256(text.encode(*_ENCODING)).hexdigest()
            self._known[id(value)] = value, text
        return self._known[id(value)][1]

    def of_class(self, kind: type) -> str:
        """The name of a class, and what the classes that are not installed define."""
        lines = (line for each in kind.__mro__ if _is_users(each) for line in self._lines(each))
        return "\n".join([_name(kind), *lines])

    def _held(self, value: Any) -> str:
        match value:
            case enum.Enum():
                return f"{_name(type(value))}.{value.name}"
            case torch.Tensor():
                return _tensor(value, values=self._values)
            case numpy.ndarray() | numpy.generic() if value.dtype.hasobject:
                return f"{value.dtype} {value.shape} {self.of(value.tolist())}"
            case numpy.ndarray() | numpy.generic():
                return f"{value.dtype.str} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
            case tuple() | list():
                return f"{type(value).__name__}[{', '.join(map(self.of, value))}]"
            case Mapping():
                entries = sorted(f"{self.of(key)}: {self.of(each)}" for key, each in value.items())
                return f"{{{', '.join(entries)}}}"
            case Set():
                return f"{{{', '.join(sorted(map(self.of, value)))}}}"
            case functools.partial():
                return self.of((value.func, value.args, value.keywords))
            case MethodType():
                return self.of(value.__func__)
            case FunctionType():
                return self._function(value)
            case functools.cached_property():
                return self.of(value.func)
            case random.Random():
                return repr(value.getstate())
            case torch.Generator():
                return _tensor(value.get_state())
            case numpy.random.Generator():
                return repr(value.bit_generator.state)
            case nn.Module():
                return _name(type(value))
            case _ if hasattr(value, "__wrapped__"):  # of a cache
                return f"{_name(type(value))} {self.of(value.__wrapped__)}"
            case _ if hasattr(value, "__qualname__"):  # a class, or a function of C
                return _name(value)
        of_users = _is_users(type(value)) and hasattr(value, "__dict__")
        return f"{self.of_class(type(value))} {self.of(vars(value))}" if of_users else _name(type(value))

    def _lines(self, kind: type) -> Iterator[str]:
        for name, value in sorted(vars(kind).items()):
            inner = getattr(value, "fget", getattr(value, "__func__", value))  # of a property, a static or class method
            if isinstance(inner, FunctionType) or not name.startswith("__"):
                yield f"{name} = {self.of(inner)}"

    def _function(self, function: FunctionType) -> str:
        if not _is_users(function):
            return _name(function)
        names = function.__code__.co_freevars
        closed = zip(names, function.__closure__ or (), strict=True)
        cells = [_in_cell(cell) for name, cell in closed if name != "__class__"]
        held = self.of((function.__defaults__, function.__kwdefaults__, cells))
        return f"{_name(function)} {self._code(function.__code__)} {held}"

    def _code(self, code: CodeType) -> str:
        constants = [self._code(each) if isinstance(each, CodeType) else self.of(each) for each in code.co_consts]
        return f"{code.co_code.hex()} {code.co_names} {constants}"


def _in_cell(cell: CellType) -> Any:
    """What a variable of an enclosing function holds; None where it was deleted, or has no value yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _name(value: Any) -> str:
    return str(value.__qualname__)


def _tensor(value: torch.Tensor, *, values: bool = True) -> str:
    of_type = f"{value.dtype} {value.layout} {tuple(value.shape)}"
    if not values or value.is_meta:
        return of_type
    whole = value.detach().cpu().to_dense().resolve_conj().resolve_neg().contiguous()
    return f"{of_type} {hashlib.sha256(whole.flatten().view(torch.uint8).numpy().data).hexdigest()}"


def _is_users(value: Any) -> bool:
    """Whether a class or a function is neither installed nor part of Python; a pickle may bring it without its
    module."""
    module = sys.modules.get(value.__module__ or "builtins")
    return module is None or module.__name__ == "__main__" or is_users(module)
