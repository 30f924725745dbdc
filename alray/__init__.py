"""alray: declarative training by Associated Learning, streamed through Ray actors.

`alray.run`, `plan`, `study`, `compare`, `load_run` and the other names of `__all__` are the Python interface;
`__init__.pyi` declares them. Each is loaded when it is first used, so that `import alray` costs nothing and changes
nothing of the program that imports it.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

__version__ = "0.4.0.dev0"

_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_IMPORTED = {name: module for module, name in re.findall(r"^from (\S+) import (\w+)", _STUB, re.MULTILINE)}
_CALLED = {of_module: name for name, of_module in re.findall(r"^(\w+) = (\w+)$", _STUB, re.MULTILINE)}
_PLACES = {_CALLED.get(name, name): (module, name) for name, module in _IMPORTED.items()}
"""Each name of the interface: the module that it comes from, and its name there."""


__all__ = ["__version__", *_PLACES]


def __getattr__(name: str) -> Any:
    """Load a name of the interface when it is first used."""
    if name not in _PLACES:
        raise AttributeError(f"module 'alray' has no attribute '{name}'")
    module, of_module = _PLACES[name]
    value = getattr(importlib.import_module(module), of_module)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
