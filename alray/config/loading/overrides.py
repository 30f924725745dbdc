"""Overrides: `key.sub=value` on the command line, applied to the document of a spec before it is checked."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from alray.config.loading.messages import meant_kind, unknown_key
from alray.config.loading.precedence import set_aside
from alray.config.loading.source_locations import COMMAND_LINE, SourceLocations, override_location
from alray.config.loading.yaml_text import plain, read_yaml
from alray.config.sections.grammar import child, spelled_out, spot_of_path
from alray.config.sections.paths import Path, key_text
from alray.config.sections.section import Section, describe
from alray.config.sections.spec import Spec
from alray.core.errors import Problem, SpecError, printable


@dataclass(frozen=True)
class _Override:
    text: str
    path: Path
    value: Any


@dataclass
class Applied:
    """The result of applying overrides."""

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """The values that were removed from the file, one sentence for each."""

    def refuse(self, text: str, message: str, hint: str | None, path: Path = (), *, at_key: bool = True) -> None:
        """Record that the override `text` cannot be applied.

        Args:
            at_key: whether that is due to its key.
        """
        location = override_location(text)
        self.problems.append(location.problem(message, hint, key_text(path) or None, at_key=at_key))


def override_text(key: str, value: Any) -> str:
    """An override as text: `optimizer.lr=0.001`.

    A byte of a file name that is not UTF-8 becomes an escape, which YAML knows. Raises SpecError as `plain`.
    """
    return f"{key}={printable(json.dumps(plain(value, tuple(key.split('.'))), ensure_ascii=False))}"


def apply_overrides(
    document: dict[str, Any],
    texts: Sequence[str],
    locations: SourceLocations,
    *,
    root: type[Section] = Spec,
    flat: Sequence[Path] = (),
) -> Applied:
    """Apply overrides to `document` in order and in place, and record them in `locations`.

    Overrides that cannot be applied become problems; the others are still applied. A text for a section that has kinds
    (`method=backpropagation`) selects that kind with its defaults. If an override changes a `kind`, `source` or
    `block`, the file's keys that the new kind does not have are removed. If it contradicts another value of the file,
    that value is removed (`alray.config.loading.precedence`). A note reports each removal.

    Args:
        root: the model of the document.
        flat: sections of it whose keys may hold dots.
    """
    applied = Applied()
    done: list[Path] = []
    for words in each_in_words(texts):
        text = " ".join(words)
        if len(words) > 1:
            hint = f"write them without blanks, `{''.join(words)}`, or in quotes"
            applied.refuse(text, f"`{text}` has blanks around `=`", hint)
            continue
        override = _parse(text, document, flat, applied)
        if override is None:
            continue
        undone = [path for path in done if path[: len(override.path)] == override.path]
        if override.path in undone:
            applied.refuse(text, "this override is given twice", "keep one of them", override.path)
        elif undone:
            applied.refuse(text, f"this would undo the override {key_text(undone[0])}", "give it first", override.path)
        elif _apply(document, override, locations, root, applied):
            done.append(override.path)
    applied.notes += set_aside(document, frozenset(done), locations)
    return applied


_FILES = (".yaml", ".yml")
"""How the name of a file ends that stands before an override, and not that of a key."""


def each_in_words(texts: Sequence[str]) -> list[list[str]]:
    """The overrides, each in one word: of one that is typed with blanks around its `=`, a shell makes several."""
    found: list[list[str]] = []
    for text in texts:
        before = found[-1][-1] if found else ".yaml"
        if (text.startswith("=") and not before.endswith(_FILES)) or (before.endswith("=") and "=" not in text):
            found[-1].append(text)
        else:
            found.append([text])
    return found


def _parse(text: str, document: dict[str, Any], flat: Sequence[Path], applied: Applied) -> _Override | None:
    key, equals, written = text.partition("=")
    parts = re.sub(r"\[([0-9]+)\]", r".\1", key.strip()).split(".")
    if not equals or not all(parts):
        hint = "write, for example, optimizer.lr=3e-4; a value with blanks in quotes"
        applied.refuse(text, f"`{text}` does not have the form key=value", hint)
        return None
    for section in flat:
        if tuple(parts[: len(section)]) == section and len(parts) > len(section):
            parts[len(section) :] = [".".join(parts[len(section) :])]
    path: Path = ()
    holder: Any = document
    for part in parts:
        step = int(part) if isinstance(holder, list) and re.fullmatch("[0-9]{1,9}", part) else part
        path = (*path, step)
        holder = child(holder, step)
    try:
        value = deepcopy(_value(written))
    except SpecError as error:
        for fault in error.problems:
            applied.refuse(text, f"`{written}`: {fault.message}", fault.hint, path, at_key=False)
        return None
    return _Override(text, path, value)


@lru_cache(256)
def _value(written: str) -> Any:
    """The value in a text. The points of a study have the same ones again and again."""
    return read_yaml(written, COMMAND_LINE)[0]


def _apply(
    document: dict[str, Any], override: _Override, locations: SourceLocations, root: type[Section], applied: Applied
) -> bool:
    holder = _holder(document, override, locations, root, applied)
    if holder is None:
        return False
    applied.notes += _drop_lacking(document, holder, override, locations, root)
    holder[override.path[-1]] = override.value
    if isinstance(override.value, str | list | dict):  # others are no names of kinds; a study has thousands of them
        spelled_out(document, root)
    locations.override(override.path, override.text)
    return True


def _holder(
    document: dict[str, Any], override: _Override, locations: SourceLocations, root: type[Section], applied: Applied
) -> Any:
    """Return the section or list that contains the last key of its path, or record a problem and return None.

    Missing sections on the way are created.
    """
    holder: Any = document
    text, path = override.text, override.path
    for depth, part in enumerate(path):
        around = path[:depth]
        if isinstance(holder, list):
            if not isinstance(part, int):
                applied.refuse(text, f"`{key_text(around)}` is a list", "give the number of an entry", path)
                return None
            if part >= len(holder):
                hint = f"the last one is {len(holder) - 1}"
                applied.refuse(text, f"`{key_text(around)}` has no entry {part}", hint, path)
                return None
        elif not isinstance(holder, dict):
            whole = f"replace it: {key_text(around)}=..."
            applied.refuse(text, f"`{key_text(around)}` is {describe(holder)}, not a section", whole, path)
            return None
        if depth == len(path) - 1:
            return holder
        if isinstance(holder, dict) and holder.get(str(part)) is None:
            here = spot_of_path(document, around, root)
            if here.section is not None and not here.takes(str(part)):
                applied.refuse(text, *unknown_key((*around, part), here, locations, root), (*around, part))
                return None
            holder[str(part)] = {}
            locations.override((*around, part), text)
        holder = child(holder, part)
    return None


def _drop_lacking(
    document: dict[str, Any], holder: Any, override: _Override, locations: SourceLocations, root: type[Section]
) -> list[str]:
    """If the override selects another kind, remove the keys that this kind does not have. Returns notes.

    Keys that come from the command line stay.
    """
    *above, key = override.path
    around = tuple(above)
    here = spot_of_path(document, around, root)
    if here.choice is None or here.choice.key != key or not isinstance(holder, dict):
        return []
    chosen = here.members.get(meant_kind(override.value, here) or "")
    if chosen is None or chosen.model_config.get("extra") == "allow":
        return []
    dropped = [old for old in holder if old not in chosen.model_fields and not locations.is_override((*around, old))]
    for old in dropped:
        del holder[old]
    if not dropped:
        return []
    keys = ", ".join(key_text((*around, old)) for old in dropped)
    return [f"{override.text} removes {keys}: {override.value} has no such key"]
