"""Which committed spec or study uses each key and kind of the grammar.

`python -m benchmarks.keys_page` names one of them for each key, and `tests/config/test_key_users.py` wants one of each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from inspect import get_annotations
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

from alray.config.loading.composition import Composed
from alray.config.loading.load import read_document, read_spec
from alray.config.loading.overrides import apply_overrides, override_text
from alray.config.sections.choice import Choice
from alray.config.sections.grammar import (
    bare,
    choice_of,
    inside,
    item_of,
    key_types,
    section_of,
    sections_of,
    selected,
    spelled_out,
)
from alray.config.sections.own_code import OwnCode
from alray.config.sections.section import Section
from alray.config.sections.spec import KINDS, Spec
from alray.config.study.load import is_study
from alray.config.study.section import VARIANT, Study

ROOT = Path(__file__).parents[1]
FOLDERS = ("specs", "examples", "benchmarks", "plugins")
"""Where committed specs lie; the first ones are named first."""


_CHOOSES = ("kind", "source", "block")


class Key(NamedTuple):
    """A key of a section. Keys of one name in several parts of one kind are one key, such as `head` of methods, and so
    is a key that several sections inherit. The key by which a kind is chosen is that of each."""

    section: str
    name: str

    @classmethod
    def of(cls, section: type[Section], name: str) -> Key:
        if name in _CHOOSES:
            return cls(section.__name__, name)
        bases = [kind.base for kind in KINDS if issubclass(section, kind.base)]
        bases += [each for each in section.__mro__ if name in get_annotations(each)]
        return cls(next(iter(bases), section).__name__, name)


Document = tuple[str, Any, type[Section]]
"""A committed file, as a path from the root of the repository; a spec or a study that it has; and which of the two."""


@cache
def documents() -> tuple[Document, ...]:
    """The committed specs and studies, and the specs that the studies make of their bases."""
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.yaml"))]
    return tuple((file.relative_to(ROOT).as_posix(), *found) for file in files for found in _read(file))


def _read(file: Path) -> Iterator[tuple[Any, type[Section]]]:
    if not is_study(file):
        yield read_spec(file).value, Spec
        return
    study = spelled_out(read_document(file).value, Study)
    yield study, Study
    base = read_spec(file.parent / study["base"])
    for settings in _settings(study):
        yield _changed(base.copy(), settings), Spec


@cache
def users() -> dict[Key, str]:
    """Every key that is used, with the first file that uses it."""
    found: dict[Key, str] = {}
    for file, document, root in documents():
        for key in _given(document, root):
            found.setdefault(key, file)
    return found


def user_of(sections: Collection[str], key: str) -> str | None:
    """A file that uses a key of a section, or of one of several kinds, by the names of their classes."""
    return next((found for name in sections if (found := users().get(Key.of(_named()[name], key)))), None)


@cache
def _named() -> dict[str, type[Section]]:
    return {section.__name__: section for section in _sections(Spec, Study)}


def schedules() -> set[str]:
    """The schedules of the pipeline that are used, by their names."""
    sections = (document.get("pipeline", {}) for _, document, root in documents() if root is Spec)
    return {section["schedule"] for section in sections if "schedule" in section}


def _settings(study: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What the study sets in its base: everywhere, in each variant, and at each value of an axis."""
    everywhere, axes = study.get("set", {}), study.get("axes", {})
    yield everywhere
    for settings in axes.get(VARIANT, {}).values():
        yield {**everywhere, **settings}
    for axis, values in axes.items():
        if axis != VARIANT:
            yield from ({**everywhere, axis: value} for value in values)


def _changed(base: Composed, settings: Mapping[str, Any]) -> Any:
    apply_overrides(base.value, [override_text(key, value) for key, value in settings.items()], base.locations)
    return base.value


def _given(value: Any, annotation: Any) -> Iterator[Key]:
    """The keys that a document gives, and those by which its kinds are chosen."""
    chosen = selected(annotation, value)
    section, choice = section_of(chosen), choice_of(annotation)
    if isinstance(value, dict) and section is not None:
        yield from (Key.of(section, key) for key in value if key in section.model_fields)
        if isinstance(choice, Choice):
            yield Key.of(section, choice.key)
    core, _ = bare(chosen)
    if isinstance(value, dict) and get_origin(core) is dict:
        for each in value.values():
            yield from _given(each, item_of(chosen))
    for part, inner in inside(annotation, value):
        yield from _given(value[part], inner)


def all_keys() -> set[Key]:
    """Every key of the grammar."""
    return {Key.of(section, key) for section in _sections(Spec, Study) for key in section.model_fields}


def default_kinds() -> set[Key]:
    """The kinds of sections that a document may leave out: every document that does uses them."""
    found = set()
    for section in _sections(Spec, Study):
        for annotation in key_types(section).values():
            choice, kind = choice_of(annotation), section_of(selected(annotation, {}))
            if isinstance(choice, Choice) and choice.default is not None and kind is not None:
                found.add(Key.of(kind, choice.key))
    return found


def open_kinds() -> set[Key]:
    """The doors to classes of the user and of packages, which name no part: tests and pages go through each."""
    return {Key.of(each, key) for each in _sections(Spec) if issubclass(each, OwnCode) for key in _CHOOSES}


def _sections(*roots: type[Section]) -> list[type[Section]]:
    """The sections of a grammar, of every kind."""
    found: list[type[Section]] = []
    waiting: list[Any] = list(roots)
    while waiting:
        annotation = waiting.pop()
        for section in sections_of(annotation):
            if section not in found:
                found.append(section)
                waiting += key_types(section).values()
        core, _ = bare(annotation)
        waiting += [each for each in get_args(core) if each is not Ellipsis] if section_of(annotation) is None else []
    return found
