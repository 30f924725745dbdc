"""How a section says which of several kinds it is: `kind: adam`, `source: digits`, `block: vgg`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from alray.spec.own_code import PREFIX

OPEN_TAG = "python"
"""Tag of the member that stands for a class of the user's own, written `python:package.module.Class`."""


@dataclass(frozen=True)
class Choice:
    """Reads the tag of a union's member from a mapping; pydantic calls it as the union's discriminator.

    `key` is the key that holds the tag, `default` the tag where that key is left out (None: it may not be).
    """

    key: str
    default: str | None = None

    @property
    def __name__(self) -> str:
        """pydantic asks a discriminator for its name."""
        return self.key

    def __call__(self, value: Any) -> str | None:
        """The tag, or None where `value` has none."""
        if not isinstance(value, dict):
            tag = getattr(value, self.key, None)
        else:
            tag = value.get(self.key, self.default)
        if not isinstance(tag, str):
            return None
        return OPEN_TAG if tag.startswith(PREFIX) else tag


@dataclass(frozen=True)
class ByShape:
    """Discriminator of a union of a list (or mapping) and something else: the value's own shape decides."""

    shape: type | tuple[type, ...]
    tag: str
    otherwise: str

    @property
    def __name__(self) -> str:
        """pydantic asks a discriminator for its name."""
        return f"{self.tag} or {self.otherwise}"

    def __call__(self, value: Any) -> str:
        """`tag` where the value is of `shape`, else `otherwise`."""
        return self.tag if isinstance(value, self.shape) else self.otherwise
