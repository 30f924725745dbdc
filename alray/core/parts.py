"""alray's parts by name: the folders and files in `alray/parts/<kind>`, found without importing them."""

from __future__ import annotations

import importlib.util
import pkgutil
from functools import cache
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


@cache
def names_of(kind: str) -> tuple[str, ...]:
    """The names of alray's parts of a kind, such as `methods`, in alphabetical order."""
    folder = importlib.import_module(f"alray.parts.{kind}")
    return tuple(sorted(module.name for module in pkgutil.iter_modules(folder.__path__)))


def module_of(kind: str, name: str, file: str = "") -> ModuleType:
    """A file of a part, such as `keys`; without one, the part itself."""
    return importlib.import_module(".".join(filter(None, ["alray.parts", kind, name, file])))


def keys_of(kind: str, name: str) -> ModuleType:
    """The file with the keys of a part: `keys.py` where its folder has one, otherwise the part itself."""
    part = module_of(kind, name)
    has_file = hasattr(part, "__path__") and importlib.util.find_spec(f"{part.__name__}.keys") is not None
    return module_of(kind, name, "keys") if has_file else part


def class_in(module: ModuleType, base: type[T]) -> type[T]:
    """The class derived from `base` that a file of a part has. Raises TypeError unless there is exactly one."""
    own = [each for each in vars(module).values() if isinstance(each, type) and each.__module__ == module.__name__]
    found: list[type[T]] = [each for each in own if issubclass(each, base)]
    if len(found) != 1:
        raise TypeError(f"{module.__name__} must have one class derived from {base.__name__}, not {found}")
    return found[0]
