"""A kind of part that a spec chooses by name: methods, blocks, sources, tasks, optimizers and others.

alray's parts lie in `alray/parts/<kind>/`. One is a file, whose functions import torch when they are called; or a
folder, whose `__init__.py` or `keys.py` has the keys and imports neither torch nor Ray, and whose code is imported when
a run needs it. Installed packages give further names by entry points, and a spec names a class of the user as
`python:module.Class`. `alray.config.made` finds the code of any of the three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from alray.config.sections.choice import OPEN_TAG, Choice
from alray.config.sections.duration import Duration
from alray.config.sections.paths import Path
from alray.config.sections.section import Section
from alray.core.parts import class_in, keys_of, names_of

if TYPE_CHECKING:
    from alray.config.sections.spec import Spec

Finding = tuple[Path, str, str]
"""What is wrong with a spec: the key, the message and the hint."""
MiniBatches = Callable[[Duration], int]
"""The number of mini-batches in a duration."""
Begin = tuple[str, int, str]
"""What begins in the middle of a run: its key, the first mini-batch of it, from 1, and what that mini-batch is, in
words."""


class PartSection(Section):
    """The keys of a part, and the facts about it that the spec and the plan need."""

    implementation: ClassVar[str] = ""
    """The code that carries it out: `name` in the file of the part, `file:name` in its folder."""
    chosen_by: ClassVar[tuple[str, ...]] = ("kind",)
    """The keys that are no arguments of the code."""

    @property
    def fields(self) -> dict[str, Any]:
        """The arguments of the code, by name."""
        return {key: getattr(self, key) for key in type(self).model_fields if key not in self.chosen_by}

    def faults(self, spec: Spec, at: Path) -> Iterator[Finding]:
        """What does not fit together: keys of the part with each other, or with the rest of the spec.

        Args:
            at: where the part is in the spec.
        """
        return iter(())

    def begins(self, mini_batches: MiniBatches) -> Iterator[Begin]:
        """What begins in the middle of a run, where it is long enough."""
        return iter(())


def parts_of(section: Section, path: Path = ()) -> Iterator[tuple[Path, PartSection]]:
    """The parts that a section chooses, itself included, each with where it is."""
    if isinstance(section, PartSection):
        yield path, section
    for key in type(section).model_fields:
        value = getattr(section, key)
        for index, inner in enumerate(value) if isinstance(value, tuple) else [(None, value)]:
            if isinstance(inner, Section):
                yield from parts_of(inner, (*path, key) if index is None else (*path, key, index))


K = TypeVar("K", bound=PartSection)


@dataclass(frozen=True)
class Kind(Generic[K]):
    """A kind of part. As an annotation of a field, `Annotated[MethodSection, METHODS]`, it lets the field hold the keys
    of any part of this kind.

    Attributes:
        name: plural, the folder in `alray/parts` and the end of the group of entry points, `alray.methods`.
        base: the class of the keys of all parts of this kind.
        of_user: the keys of a class of the user, or of an installed package.
        key: the key of the spec with the part's name.
        default: the part of a spec that names none; None: the key is required.
    """

    name: str
    base: type[K]
    of_user: type[K]
    key: str = "kind"
    default: str | None = None

    @cached_property
    def sections(self) -> dict[str, type[K]]:
        """The keys of alray's parts, by name; the default comes first."""
        names = sorted(names_of(self.name), key=lambda name: name != self.default)
        return {name: class_in(keys_of(self.name, name), self.base) for name in names}

    @property
    def group(self) -> str:
        """The group of entry points."""
        return f"alray.{self.name}"

    @cached_property
    def choice(self) -> Choice:
        """How a mapping of the spec chooses a part."""
        return Choice(self.key, default=self.default, group=self.group, own=lambda: self.sections)

    @cached_property
    def members(self) -> dict[str, type[K]]:
        """The keys that a field may have, by tag."""
        return {**self.sections, OPEN_TAG: self.of_user}

    def section(self, name: str, **fields: Any) -> K:
        """The keys of one of alray's own parts."""
        return self.sections[name](**{self.key: name}, **fields)

    def default_section(self, **fields: Any) -> K:
        """The keys of the part of a spec that names none."""
        assert self.default is not None
        return self.sections[self.default](**fields)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        # Not a `Union`: a kind of which alray itself has no part has one member.
        members = {tag: handler.generate_schema(section) for tag, section in self.members.items()}
        return core_schema.tagged_union_schema(members, self.choice)
