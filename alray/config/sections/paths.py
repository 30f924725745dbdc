"""Paths to the values of a spec, and how messages print them."""

from __future__ import annotations

import re
from collections.abc import Iterable

Path = tuple[str | int, ...]
"""Keys and list indices from the root of the spec to a value."""


def key_text(path: Path) -> str:
    """Return a path as messages print it: `model.components[2].channels`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def path_of(key: str) -> Path:
    """The path of a key, as `key_text` prints it."""
    return tuple(int(part) if part.isdigit() else part for part in re.findall(r"[^.\[\]]+", key))


def is_under(key: str, sections: Iterable[str]) -> bool:
    """Whether a key is one of these, or in the section of one."""
    return any(key == each or key.startswith(each.rstrip(".") + ".") for each in sections)
