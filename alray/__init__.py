"""alray: declarative training by Associated Learning, streamed through Ray actors.

`alray.run`, `plan`, `study`, `compare`, `load_run` and the other names of `__all__` are the Python interface. Each is
loaded when it is first used, so that `import alray` costs nothing; `__init__.pyi` has their types.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

# Deterministic runs need it on a GPU. cuBLAS's setting is read at the first matrix product of a process, and not again.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
# A stage between two others has up to four streams of NCCL, and further ones for sums and copies. With 8 queues, the
# default, two streams may share one: a receive that waits there holds up the send that its neighbour waits for.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

_PLACES = {
    "AlrayError": "alray.errors",
    "Comparison": "alray.python.comparison",
    "Run": "alray.python.runs",
    "Spec": "alray.spec.models",
    "Study": "alray.python.studies",
    "compare": "alray.python.comparison",
    "fit": "alray.python.plans",
    "load_run": "alray.python.runs",
    "load_study": "alray.python.studies",
    "plan": "alray.python.plans",
    "reproduce": "alray.python.runs",
    "run": "alray.python.runs",
    "study": "alray.python.studies",
}
"""Each name of the interface, and the file that it comes from."""
_FOLDERS = ("plan", "run", "study")
"""Functions of the interface with the same names as folders of the package."""

__all__ = ["__version__", *_PLACES]


class _Package(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        """Python sets `alray.run` to a module when it imports the folder `alray/run/`. Here it stays the function."""
        if name not in _FOLDERS or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    """Load a name of the interface when it is first used."""
    if name not in _PLACES:
        raise AttributeError(f"module 'alray' has no attribute '{name}'")
    value = getattr(importlib.import_module(_PLACES[name]), name)
    if name in _FOLDERS:  # then `alray.run.driver` still is the file of that folder
        value.__dict__ = importlib.import_module(f"alray.{name}").__dict__
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
