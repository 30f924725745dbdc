"""A cache of the data that a process has read, so that the trials of a study in that process read it once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

T = TypeVar("T")

_cache: dict[str, tuple[object, object]] | None = None


def enable_cache() -> None:
    """Cache, from now on, the last value of each kind that was read.

    Only for processes whose runs are trials of studies. In others files may change between two runs.
    """
    global _cache
    if _cache is None:
        _cache = {}


def cached(kind: str, key: object, read: Callable[[], T]) -> T:
    """Return the value of `read()`, or the cached value of this kind if the cache is on and the key is the same.

    The caller must not change the value.
    """
    if _cache is None:
        return read()
    if kind not in _cache or _cache[kind][0] != key:
        _cache[kind] = (key, read())
    return cast("T", _cache[kind][1])
