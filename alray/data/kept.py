"""What a process keeps of the data that it has read, so that the trials of a study in it read their data once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

T = TypeVar("T")

_kept: dict[str, tuple[object, object]] | None = None


def keep_data() -> None:
    """Keep from now on what was read last of each kind.

    Only for processes whose runs are trials of studies. In others files may change between two runs.
    """
    global _kept
    if _kept is None:
        _kept = {}


def once(kind: str, key: object, read: Callable[[], T]) -> T:
    """What `read` returns; the value of the last call of this kind if data is kept and the key is the same.

    Nobody changes the value.
    """
    if _kept is None:
        return read()
    if kind not in _kept or _kept[kind][0] != key:
        _kept[kind] = (key, read())
    return cast("T", _kept[kind][1])
