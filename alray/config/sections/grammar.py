"""The grammar of the spec, read from the models: which keys a path may have, and which words a choice accepts."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import Discriminator, Tag
from pydantic.fields import FieldInfo

from alray.config.sections.choice import OPEN_TAG, ByShape, Choice
from alray.config.sections.kind import Kind
from alray.config.sections.paths import Path
from alray.config.sections.section import Section
from alray.config.sections.spec import Spec


class _MarksValues(Protocol):
    def marks(self, value: Any) -> bool: ...


Mark = TypeVar("Mark", bound=_MarksValues)


@dataclass(frozen=True)
class Spot:
    """One position in the grammar.

    Attributes:
        path: keys and indices from the root to here, as a user would write them.
        section: the model whose keys are allowed here, if it is known.
        choice: how the model is selected, if there are several.
        members: these models by tag.
        around: the section that has this position as a key; None for an entry of a list.
        annotation: the type of the value here, with what `Annotated` adds; None if the grammar does not know it.
        key_type: that of the whole key or entry, where `annotation` is the one of several types that was taken.
    """

    path: Path
    section: type[Section] | None
    choice: Choice | None
    members: dict[str, type[Section]]
    around: type[Section] | None
    annotation: Any
    key_type: Any

    @property
    def field(self) -> FieldInfo | None:
        """The field of `around`."""
        return None if self.around is None else self.around.model_fields.get(str(self.path[-1]))

    @property
    def known(self) -> list[str]:
        """The words that `choice` accepts, without the open form `python:...`."""
        return [tag for tag in self.members if tag != OPEN_TAG]

    @property
    def is_open(self) -> bool:
        """Whether a class of the user is allowed here."""
        return OPEN_TAG in self.members

    @property
    def keys(self) -> list[str]:
        """The keys of `section`."""
        return list(self.section.model_fields) if self.section is not None else []

    def takes(self, key: str) -> bool:
        """Whether `section` accepts `key`."""
        if self.section is None:
            return False
        return key in self.section.model_fields or self.section.model_config.get("extra") == "allow"


def spot_of_error(location: tuple[str | int, ...], root: type[Section] = Spec) -> Spot:
    """Return the position of the `loc` of a pydantic error: a path that may contain the tags of unions too.

    Args:
        root: the model of the whole document.
    """
    annotation: Any = root
    key_type: Any = root
    section: type[Section] | None = None
    path: list[str | int] = []
    for part in location:
        arms = _arms(annotation)
        if arms is not None and part in arms:
            annotation = arms[str(part)]
            continue
        path.append(part)
        section = section_of(annotation)
        annotation = key_types(section).get(str(part)) if section is not None else item_of(annotation)
        key_type = annotation
    choice = choice_of(annotation)
    members = {tag: section_of(arm) for tag, arm in (_arms(annotation) or {}).items()}
    return Spot(
        tuple(path),
        section_of(annotation),
        choice if isinstance(choice, Choice) else None,
        {tag: member for tag, member in members.items() if member is not None},
        section,
        annotation,
        key_type,
    )


def spot_of_path(document: Any, path: Path, root: type[Section] = Spec) -> Spot:
    """Return the position of `path` in an unchecked document, whose `kind`, `source` and `block` select the models.

    Args:
        root: the model of the whole document.
    """
    location: list[str | int] = []
    value = document
    for part in path:
        # Of a document that lacks the value, the path tells that it is a list.
        shaped = [] if value is None and isinstance(part, int) else value
        location += _shapes(spot_of_error(tuple(location), root), shaped)
        tag = _tag(spot_of_error(tuple(location), root), value)
        location += [part] if tag is None else [tag, part]
        value = child(value, part)
    here = spot_of_error(tuple(location), root)
    tag = _tag(here, value)
    return here if tag is None else replace(here, section=here.members[tag])


def _shapes(here: Spot, value: Any) -> list[str]:
    """The tags of unions at this position that the type of its value decides, the outermost first."""
    tags: list[str] = []
    annotation = here.annotation
    while isinstance(choice := choice_of(annotation), ByShape):
        tags.append(choice(value))
        annotation = (_arms(annotation) or {})[tags[-1]]
    return tags


def _tag(here: Spot, value: Any) -> str | None:
    tag = here.choice(value) if here.choice is not None and isinstance(value, dict) else None
    return tag if tag in here.members else None


def child(value: Any, part: str | int) -> Any:
    """What an unchecked section or list has at a key or an index; None where it has nothing there."""
    if isinstance(value, dict):
        return value.get(part)
    if isinstance(value, list) and isinstance(part, int) and 0 <= part < len(value):
        return value[part]
    return None


def spelled_out(value: Any, annotation: Any = Spec) -> Any:
    """Return a document in which every bare name of a kind (`method: backpropagation`) is a section with this kind.

    Sections and lists are changed in place.
    """
    choice = choice_of(annotation)
    if isinstance(choice, Choice) and isinstance(value, str):
        return {choice.key: value}
    for part, inner in inside(annotation, value):
        value[part] = spelled_out(value[part], inner)
    return value


def inside(annotation: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the keys or indices of an unchecked value that the grammar knows, each with its annotation."""
    chosen = selected(annotation, value)
    section = section_of(chosen)
    if isinstance(value, list):
        item = item_of(chosen)
        yield from ((index, item) for index in range(len(value)))
    elif isinstance(value, dict) and section is not None:
        yield from ((key, inner) for key, inner in key_types(section).items() if key in value)


def marked(section: Section, mark: type[Mark], path: Path = ()) -> Iterator[tuple[Path, Any, Mark]]:
    """Yield path, value and mark of each value whose field has a `mark` that accepts it (`marks`), here and below."""
    for key, annotation in key_types(type(section)).items():
        value = getattr(section, key)
        metadata = (*bare(annotation)[1], *bare(selected(annotation, value))[1])
        own = next((item for item in metadata if isinstance(item, mark)), None)
        if value is not None and own is not None and own.marks(value):
            yield (*path, key), value, own
        for index, inner in enumerate(value) if isinstance(value, tuple) else [(None, value)]:
            if isinstance(inner, Section):
                yield from marked(inner, mark, (*path, key) if index is None else (*path, key, index))


def selected(annotation: Any, value: Any) -> Any:
    """Return the member of a tagged union that a value selects, or None; any other annotation is returned unchanged."""
    arms, choice = _arms(annotation), choice_of(annotation)
    return annotation if arms is None or choice is None else arms.get(choice(value) or "")


@cache
def key_types(section: type[Section]) -> dict[str, Any]:
    """Return the annotations of a section's fields, by key."""
    found = get_type_hints(section, include_extras=True)
    return {key: found[key] for key in section.model_fields}


@cache
def bare(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return an annotation without `Annotated` and `| None`, and its metadata."""
    metadata: tuple[Any, ...] = ()
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *more = get_args(annotation)
            metadata += tuple(more)
        elif get_origin(annotation) in (Union, types.UnionType):
            given = [arm for arm in get_args(annotation) if arm is not types.NoneType]
            if len(given) != 1:
                return annotation, metadata
            annotation = given[0]
        else:
            return annotation, metadata


@cache
def _arms(annotation: Any) -> dict[str, Any] | None:
    """Return the members of a tagged union by tag, or None if this is not one."""
    core, metadata = bare(annotation)
    for item in metadata:
        if isinstance(item, Kind):
            return dict(item.members)
    if not any(isinstance(item, Discriminator) for item in metadata):
        return None
    arms = {}
    for arm in get_args(core):
        tags = [item.tag for item in bare(arm)[1] if isinstance(item, Tag)]
        arms[tags[0]] = arm
    return arms


@cache
def choice_of(annotation: Any) -> Choice | ByShape | None:
    """Return how a value selects a member of a tagged union, or None if this is not one."""
    for item in bare(annotation)[1]:
        if isinstance(item, Kind):
            return item.choice
        if isinstance(item, Discriminator) and isinstance(item.discriminator, Choice | ByShape):
            return item.discriminator
    return None


def section_of(annotation: Any) -> type[Section] | None:
    """Return the section that an annotation stands for, or None."""
    core, _ = bare(annotation)
    return core if isinstance(core, type) and issubclass(core, Section) else None


def sections_of(annotation: Any) -> list[type[Section]]:
    """Return the sections that an annotation stands for: one, one for each kind, or none."""
    arms = _arms(annotation)
    found = [section_of(each) for each in (arms.values() if arms is not None else [annotation])]
    return [section for section in found if section is not None]


def item_of(annotation: Any) -> Any:
    """Return the annotation of the items of a list or the values of a mapping."""
    core, _ = bare(annotation)
    arguments = get_args(core)
    if get_origin(core) is tuple:
        return arguments[0]
    if get_origin(core) is dict:
        return arguments[1]
    return None
