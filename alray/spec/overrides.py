"""`key.sub=value` from the command line, applied to a spec's document before it is checked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from alray.errors import Problem, SpecError
from alray.spec.grammar import spot_of
from alray.spec.messages import unknown_key
from alray.spec.places import COMMAND_LINE, Path, Places, key_text
from alray.spec.precedence import set_aside
from alray.spec.section import describe
from alray.spec.yaml_text import read_yaml


@dataclass(frozen=True)
class _Override:
    text: str
    path: Path
    value: Any


@dataclass
class Applied:
    """What came of a list of overrides."""

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was dropped from the file, one sentence each."""

    def refuse(self, message: str, mend: str | None, path: Path = ()) -> None:
        """Note that an override cannot be applied."""
        self.problems.append(Problem(message, mend, COMMAND_LINE, None, key_text(path) or None))


def apply_overrides(document: dict[str, Any], texts: Sequence[str], places: Places) -> Applied:
    """Apply overrides to `document`, in order and in place; `places` learns which values they are.

    Those that cannot be applied are problems, and the others are applied all the same. Text for a whole
    section that has kinds (`method=backpropagation`) makes it that kind with its defaults. A `kind`, `source`
    or `block` that changes drops the keys of the file that the new one lacks, and a value that cannot hold
    beside another one of the file sets that one aside (`alray.spec.precedence`); each time with a note.
    """
    applied = Applied()
    done: list[Path] = []
    for text in texts:
        override = _parse(text, document, applied)
        if override is None:
            continue
        undone = [path for path in done if path[: len(override.path)] == override.path]
        if override.path in undone:
            applied.refuse("given twice", "keep one of them", override.path)
        elif undone:
            applied.refuse(f"it would undo {key_text(undone[0])}", "put it first", override.path)
        elif _apply(document, override, places, applied):
            done.append(override.path)
    applied.notes += set_aside(document, frozenset(done), places)
    return applied


def _parse(text: str, document: dict[str, Any], applied: Applied) -> _Override | None:
    key, equals, written = text.partition("=")
    parts = re.sub(r"\[([0-9]+)\]", r".\1", key.strip()).split(".")
    if not equals or not all(parts):
        applied.refuse(f"`{text}` is not of the form key=value", "write such as optimizer.lr=3e-4")
        return None
    path: Path = ()
    holder: Any = document
    for part in parts:
        step = int(part) if isinstance(holder, list) and re.fullmatch("[0-9]{1,9}", part) else part
        path = (*path, step)
        holder = _child(holder, step)
    try:
        value, _ = read_yaml(written, COMMAND_LINE)
    except SpecError as error:
        for said in error.problems:
            applied.refuse(f"`{written}`: {said.message}", said.mend, path)
        return None
    return _Override(text, path, value)


def _child(value: Any, part: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(str(part))
    if isinstance(value, list) and isinstance(part, int) and part < len(value):
        return value[part]
    return None


def _apply(document: dict[str, Any], override: _Override, places: Places, applied: Applied) -> bool:
    holder = _holder(document, override.path, places, applied)
    if holder is None:
        return False
    *_, last = override.path
    value = override.value
    choice = spot_of(document, override.path).choice
    if choice is not None and isinstance(value, str):
        value = {choice.key: value}
    applied.notes += _drop_lacking(document, holder, override, places)
    holder[last] = value
    places.override(override.path)
    return True


def _holder(document: dict[str, Any], path: Path, places: Places, applied: Applied) -> Any:
    """The section or list that holds the last key of `path`; None, with a problem, where there can be none.

    Sections on the way that the file leaves out are made.
    """
    holder: Any = document
    for depth, part in enumerate(path):
        around = path[:depth]
        if isinstance(holder, list):
            if not isinstance(part, int):
                applied.refuse(f"`{key_text(around)}` is a list", "name one of its entries by number", path)
                return None
            if part >= len(holder):
                applied.refuse(f"`{key_text(around)}` has no entry {part}", f"the last one is {len(holder) - 1}", path)
                return None
        elif not isinstance(holder, dict):
            whole = f"set it whole: {key_text(around)}=..."
            applied.refuse(f"`{key_text(around)}` is {describe(holder)}, not a section", whole, path)
            return None
        if depth == len(path) - 1:
            return holder
        if isinstance(holder, dict) and holder.get(str(part)) is None:
            here = spot_of(document, around)
            if here.section is not None and not here.takes(str(part)):
                applied.refuse(*unknown_key(str(part), here.keys), (*around, part))
                return None
            holder[str(part)] = {}
            places.override((*around, part))
        holder = _child(holder, part)
    return None


def _drop_lacking(document: dict[str, Any], holder: Any, override: _Override, places: Places) -> list[str]:
    """Where the override chooses another kind: drop what that lacks, unless the command line asked for it."""
    *above, key = override.path
    around = tuple(above)
    here = spot_of(document, around)
    if here.choice is None or here.choice.key != key or not isinstance(holder, dict):
        return []
    chosen = here.members.get(here.choice({key: override.value}) or "")
    if chosen is None or chosen.model_config.get("extra") == "allow":
        return []
    dropped = [old for old in holder if old not in chosen.model_fields and not places.is_override((*around, old))]
    for old in dropped:
        del holder[old]
    if not dropped:
        return []
    keys = ", ".join(key_text((*around, old)) for old in dropped)
    return [f"{override.text} drops {keys}: {override.value} has no such key"]
