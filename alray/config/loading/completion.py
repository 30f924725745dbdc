"""Completions of an override: the keys of a spec or a study that begin with what was typed."""

from __future__ import annotations

from alray.config.sections.grammar import spot_of_path
from alray.config.sections.section import Section
from alray.config.sections.spec import Spec


def keys_like(incomplete: str, root: type[Section] = Spec) -> list[str]:
    """The overrides that begin like this, up to their `=`. A section that is the only one is gone into.

    Where a section has several kinds, the keys of all of them are given.
    """
    around, dot, _ = incomplete.rpartition(".")
    if "=" in incomplete:
        return []
    found = [key for key in _keys(around + dot, root) if key.startswith(incomplete)]
    if len(found) == 1 and found[0].endswith("."):
        return _keys(found[0], root)
    return found


def _keys(around: str, root: type[Section]) -> list[str]:
    path = tuple(around.removesuffix(".").split(".")) if around else ()
    here = spot_of_path({}, path, root)
    sections = [here.section] if here.section is not None else list(here.members.values())
    names = dict.fromkeys(name for section in sections for name in section.model_fields)
    found = []
    for name in names:
        below = spot_of_path({}, (*path, name), root)
        found.append(f"{around}{name}{'.' if below.section is not None or below.members else '='}")
    return found
