"""Commented specs to begin with; they are files of the package."""

from __future__ import annotations

from importlib.resources import files

from alray.errors import SpecError

_SUFFIX = ".yaml"


def starter_names() -> list[str]:
    """The names that `starter` knows."""
    folder = files("alray.spec") / "templates"
    return sorted(entry.name.removesuffix(_SUFFIX) for entry in folder.iterdir() if entry.name.endswith(_SUFFIX))


def starter(name: str = "quickstart") -> str:
    """The text of one starter spec. Raises SpecError where there is none of that name."""
    if name not in starter_names():
        raise SpecError(f"there is no starter spec `{name}`", mend=f"known: {', '.join(starter_names())}")
    return (files("alray.spec") / "templates" / (name + _SUFFIX)).read_text(encoding="utf-8")
