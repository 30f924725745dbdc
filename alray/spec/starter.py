"""Commented specs to begin with; they are files of the package."""

from __future__ import annotations

import shlex
from importlib.resources import files
from pathlib import Path

from alray.errors import SpecError

SCHEMA_FILE = "alray.schema.json"
"""The name under which the starter specs tell editors of the schema, beside them."""
_SUFFIX = ".yaml"


def starter_names() -> list[str]:
    """The names that `starter` knows."""
    folder = files("alray.spec") / "templates"
    return sorted(entry.name.removesuffix(_SUFFIX) for entry in folder.iterdir() if entry.name.endswith(_SUFFIX))


def starter(name: str = "quickstart", file: Path | None = None) -> str:
    """The text of one starter spec; file: where it is to be written, for the command that it names in its first line.

    Raises SpecError where there is none of that name.
    """
    if name not in starter_names():
        raise SpecError(f"there is no starter spec `{name}`", mend=f"known: {', '.join(starter_names())}")
    text = (files("alray.spec") / "templates" / (name + _SUFFIX)).read_text(encoding="utf-8")
    if file is None:
        return text
    first, rest = text.split("\n", 1)
    shown, _, _ = first.partition("alray run ")
    return f"{shown}alray run {shlex.quote(str(file))}\n{rest}"
