"""The libraries of the extra `hub`, imported where they are needed."""

from __future__ import annotations

import importlib
from typing import Any, Literal

from alray.errors import DataError


def require_hub(library: Literal["datasets", "tokenizers"]) -> Any:
    """The library. Raises DataError where the extra is not installed."""
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as error:
        raise DataError(
            f"this needs the library `{error.name}`, which is not installed",
            key="data",
            mend="pip install 'alray[hub]'",
        ) from error
