"""How a section selects one of several kinds: `kind: adam`, `source: digits`, `block: vgg`."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

from alray.config.sections.own_code import OWN
from alray.core.packages import provided

OPEN_TAG = "python"
"""Tag of the union member for a class of the user, `python:package.module.Class`, or of an installed package."""


@dataclass(frozen=True)
class Choice:
    """The discriminator of a tagged union: pydantic calls it to read the tag from a mapping.

    Attributes:
        key: the key with the tag.
        default: the tag if the key is left out; None if the key is required.
        group: of entry points, by which installed packages provide further names; None: they provide none.
        own: gives the names of alray, which those of packages never replace.
    """

    key: str
    default: str | None = None
    group: str | None = None
    own: Callable[[], Container[str]] = tuple

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
        return OPEN_TAG if tag.startswith(OWN) or self._is_of_a_package(tag) else tag

    def _is_of_a_package(self, tag: str) -> bool:
        """Packages are looked for only where alray does not know the name: that takes time."""
        return self.group is not None and tag not in self.own() and tag in provided(self.group)


@dataclass(frozen=True)
class ByShape:
    """The discriminator of a union that is decided by the type of the value, such as a list or a name."""

    shape: type | tuple[type, ...]
    tag: str
    otherwise: str

    @property
    def __name__(self) -> str:
        """pydantic asks a discriminator for its name."""
        return f"{self.tag} or {self.otherwise}"

    def __call__(self, value: Any) -> str:
        """Return `tag` if the value has the type `shape`, else `otherwise`."""
        return self.tag if isinstance(value, self.shape) else self.otherwise
