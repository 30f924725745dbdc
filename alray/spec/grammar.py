"""The grammar of the spec, read from the models: which keys a path may have, and which words a choice accepts."""

from __future__ import annotations

import types
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import Discriminator, Tag

from alray.spec.choice import OPEN_TAG, Choice
from alray.spec.models import Spec
from alray.spec.places import Path
from alray.spec.section import Section


@dataclass(frozen=True)
class Spot:
    """One place in the grammar.

    path: keys and indices from the root to here, as a user would write them. section: the model whose keys are allowed
    here, if it is known. choice: how the model is selected, if there are several. members: these models by tag.
    description: the docstring of the field at this place.
    """

    path: Path
    section: type[Section] | None
    choice: Choice | None
    members: dict[str, type[Section]]
    description: str | None

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


def spot(location: tuple[str | int, ...], root: type[Section] = Spec) -> Spot:
    """Return the place of a pydantic error's location, which may contain the tags of unions.

    root: the model of the whole document.
    """
    annotation: Any = root
    description: str | None = None
    path: list[str | int] = []
    for part in location:
        arms = _arms(annotation)
        if arms is not None and part in arms:
            annotation = arms[str(part)]
            continue
        path.append(part)
        section = _section(annotation)
        if section is not None:
            fields = section.model_fields
            description = fields[part].description if isinstance(part, str) and part in fields else None
            annotation = _hints(section).get(str(part))
        else:
            annotation = _item(annotation)
    choice = _choice(annotation)
    members = {tag: _section(arm) for tag, arm in (_arms(annotation) or {}).items()}
    return Spot(
        tuple(path),
        _section(annotation),
        choice,
        {tag: member for tag, member in members.items() if member is not None},
        description,
    )


def spot_of(document: Any, path: Path, root: type[Section] = Spec) -> Spot:
    """Return the place of `path` in an unchecked document. Its `kind`, `source` and `block` select the models.

    root: the model of the whole document.
    """
    location: list[str | int] = []
    value = document
    for part in path:
        tag = _tag(spot(tuple(location), root), value)
        location += [part] if tag is None else [tag, part]
        value = _child(value, part)
    here = spot(tuple(location), root)
    tag = _tag(here, value)
    return here if tag is None else replace(here, section=here.members[tag])


def _tag(here: Spot, value: Any) -> str | None:
    tag = here.choice(value) if here.choice is not None and isinstance(value, dict) else None
    return tag if tag in here.members else None


def _child(value: Any, part: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(part)
    if isinstance(value, list) and isinstance(part, int) and 0 <= part < len(value):
        return value[part]
    return None


@cache
def _hints(section: type[Section]) -> dict[str, Any]:
    return get_type_hints(section, include_extras=True)


def _bare(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
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


def _arms(annotation: Any) -> dict[str, Any] | None:
    """Return the members of a tagged union by tag, or None if this is not one."""
    bare, metadata = _bare(annotation)
    if not any(isinstance(item, Discriminator) for item in metadata):
        return None
    arms = {}
    for arm in get_args(bare):
        tags = [item.tag for item in _bare(arm)[1] if isinstance(item, Tag)]
        arms[tags[0]] = arm
    return arms


def _choice(annotation: Any) -> Choice | None:
    for item in _bare(annotation)[1]:
        if isinstance(item, Discriminator) and isinstance(item.discriminator, Choice):
            return item.discriminator
    return None


def _section(annotation: Any) -> type[Section] | None:
    bare, _ = _bare(annotation)
    return bare if isinstance(bare, type) and issubclass(bare, Section) else None


def _item(annotation: Any) -> Any:
    """Return the annotation of the items of a list or the values of a mapping."""
    bare, _ = _bare(annotation)
    arguments = get_args(bare)
    if get_origin(bare) is tuple:
        return arguments[0]
    if get_origin(bare) is dict:
        return arguments[1]
    return None
