"""alray: declarative training by Associated Learning, streamed through Ray actors.

`alray.run`, `plan`, `study`, `compare`, `load_run` and the other names of `__all__` are the Python interface. Each is
loaded when it is first used, so that `import alray` costs nothing; `__init__.pyi` has their types.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

__version__ = "0.2.0"

# Deterministic runs need it on a GPU. cuBLAS's setting is read at the first matrix product of a process, and not again.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
# A stage between two others has up to four streams of NCCL, and further ones for sums and copies. With 8 queues, the
# default, two streams may share one: a receive that waits there holds up the send that its neighbour waits for.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

_PLACES = {
    "AlrayError": "alray.core.errors",
    "Comparison": "alray.api.comparison",
    "Run": "alray.api.runs",
    "Spec": "alray.config.sections.models",
    "Study": "alray.api.studies",
    "compare": "alray.api.comparison",
    "fit": "alray.api.plans",
    "load_run": "alray.api.runs",
    "load_study": "alray.api.studies",
    "plan": "alray.api.plans",
    "reproduce": "alray.api.runs",
    "run": "alray.api.runs",
    "study": "alray.api.studies",
}
"""Each name of the interface, and the file that it comes from."""

__all__ = ["__version__", *_PLACES]


def __getattr__(name: str) -> Any:
    """Load a name of the interface when it is first used."""
    if name not in _PLACES:
        raise AttributeError(f"module 'alray' has no attribute '{name}'")
    value = getattr(importlib.import_module(_PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
