"""Commented example specs, which are files of the package."""

from __future__ import annotations

import shlex
from importlib.resources import files
from pathlib import Path

from alray.errors import SpecError

SCHEMA_FILE = "alray.schema.json"
"""The name of the schema file beside the starter specs; their first comment tells editors to use it."""
_SUFFIX = ".yaml"


def starter_names() -> list[str]:
    """Return the names of the starter specs."""
    folder = files("alray.spec") / "templates"
    return sorted(entry.name.removesuffix(_SUFFIX) for entry in folder.iterdir() if entry.name.endswith(_SUFFIX))


def starter(name: str = "quickstart", file: Path | None = None) -> str:
    """Return the text of a starter spec.

    file: where it will be written; its first line then shows the command that runs this file. Raises SpecError if
    there is no starter spec of this name.
    """
    if name not in starter_names():
        raise SpecError(f"there is no starter spec `{name}`", mend=f"known: {', '.join(starter_names())}")
    text = (files("alray.spec") / "templates" / (name + _SUFFIX)).read_text(encoding="utf-8")
    if file is None:
        return text
    first, rest = text.split("\n", 1)
    shown, _, _ = first.partition("alray run ")
    return f"{shown}alray run {shlex.quote(str(file))}\n{rest}"
