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
_MADE_BY = f"2 {sys.implementation.cache_tag} torch-{torch.__version__.partition('+')[0]}"
"""What hashes depend on besides the module: how they are made, code of Python, and attributes of torch's layers."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None), PurePath, torch.dtype, torch.device)
_BYTES_SAY_ALL = "biufcSUMm"  # kinds of NumPy: numbers, texts, times
_ENCODING = ("utf-8", "surrogatepass")
_LONGEST = 1000  # characters of a text that is not hashed: one value may be a part of many


def module_sha256(module: nn.Module, *, values: bool = True) -> str:
    """SHA-256 of a module after what made it, `2 cpython-311 torch-2.9.0:...`.

    It is of its parts the classes, their attributes, and the code of classes and functions that are not installed, as
    this version of Python compiles it; of its weights and buffers names, types, values, and whether they are trained.
    Of other objects in it only the class is known.

    Args:
        values: of weights, buffers and other tensors too; otherwise modules that differ in them alone are equal.
    """
    found = hashlib.sha256()
    texts = _Texts(values=values)
    for name, part in module.named_modules():
        kept = {key: value for key, value in vars(part).items() if key not in _OF_TORCH}
        hooks = [list(vars(part)[key].values()) for key in _HOOKS]
        lines = (name, texts.of_class(type(part)), texts.of(kept), texts.of(hooks))
        found.update("\n".join(lines).encode(*_ENCODING))
    trained = {name for name, each in module.named_parameters(remove_duplicate=False) if each.requires_grad}
    for tensors in (module.named_parameters, module.named_buffers):
        for name, value in tensors(remove_duplicate=False):
            found.update(f"{name} {name in trained} {_tensor(value, values=values)}\n".encode())
    return f"{_MADE_BY}:{found.hexdigest()}"


def is_same_module(one: str, other: str) -> bool | None:
    """Whether two hashes are of equal modules. None: they differ, but other versions made them, so it is not known."""
    (by, sha256), (by_other, sha256_other) = (each.rpartition(":")[::2] for each in (one, other))
    return sha256 == sha256_other or (None if by != by_other else False)


class _Texts:
    """Says what values hold, as texts without addresses."""

    def __init__(self, *, values: bool) -> None:
        """
        Args:
            values: of tensors too; otherwise their types and shapes alone.
        """
        self._values = values
        self._around: list[int] = []  # the values that hold this one, which it may hold itself
        self._loops = 0
        self._known: dict[int, tuple[Any, str]] = {}  # by identity, which is one value's as long as that is kept

    def of(self, value: Any) -> str:
        """What a value holds; of much, its hash."""
        if isinstance(value, _PLAIN) and not isinstance(value, enum.Enum):
            return f"{type(value).__name__} {value!r}"
        if id(value) in self._known:
            return self._known[id(value)][1]
        if id(value) in self._around:
            self._loops += 1
            return "..."
        loops = self._loops
        self._around.append(id(value))
        text = self._held(value)
        self._around.pop()
        if len(text) > _LONGEST:
            text = hashlib.sha256(text.encode(*_ENCODING)).hexdigest()
        # One that holds itself depends on what is around it, and is told once.
        self._known[id(value)] = value, text if loops == self._loops else "again"
        return text

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
            case numpy.ndarray() | numpy.generic() if value.dtype.kind in _BYTES_SAY_ALL:
                return _array(numpy.asarray(value))
            case numpy.ndarray() | numpy.generic():
                return f"{value.dtype} {value.shape} {self.of(value.tolist())}"
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
            case type():
                return _name(value)
            case _ if hasattr(value, "__wrapped__"):  # of a cache
                return f"{_name(type(value))} {self.of(value.__wrapped__)}"
            case _ if hasattr(value, "__qualname__"):  # a function of C
                return _name(value)
            case nn.Module():
                return _name(type(value))
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
    value = value.detach()
    of_type = f"{value.dtype} {value.layout} {tuple(value.shape)}"
    if not values:
        return of_type
    if value.is_meta:
        return f"{of_type} without values"
    value = value.cpu()
    if value.layout != torch.strided:
        parts = value.to_sparse().coalesce()
        return f"{of_type} {_tensor(parts.indices())} {_tensor(parts.values())}"
    whole = (value.dequantize() if value.is_quantized else value).resolve_conj().resolve_neg().contiguous()
    return f"{of_type} {hashlib.sha256(whole.flatten().view(torch.uint8).numpy().data).hexdigest()}"


def _array(value: numpy.ndarray[Any, Any]) -> str:
    """Of numbers, texts, or times."""
    if value.dtype.char in "gG":  # their bytes have gaps without a meaning
        near = value.astype(value.dtype.char.replace("g", "d").replace("G", "D"))
        return f"{value.dtype.char} {_array(near)} {_array((value - near).astype(near.dtype))}"
    return f"{value.dtype.str} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"


def _is_users(value: Any) -> bool:
    """Whether a class or a function is neither installed nor part of Python; a pickle may bring it without its
    module."""
    module = sys.modules.get(value.__module__ or "builtins")
    return module is None or module.__name__ == "__main__" or is_users(module)
