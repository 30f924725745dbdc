"""Objects that a Python program gave to a run: a spec names each `object:NAME`, after the section where it stands.

They are in no file. A pickle is made once, when the program calls alray, and unpickled in the processes of that run
alone: no run folder holds one. So a run is continued or evaluated only by a program that gives its objects again. Their
identity is that of what they hold: `Network.model_sha256`, and `contents` of the data.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any

from alray.config.sections.grammar import marked
from alray.config.sections.own_code import OBJECT, GivenObject
from alray.config.sections.paths import Path, key_text
from alray.config.sections.spec import Spec
from alray.core.errors import Problem, RequestError


@dataclass(frozen=True)
class Pickled:
    """An object by value, as its pickle of this process's program."""

    content: bytes

    def unpickled(self) -> Any:
        """The object anew."""
        return pickle.loads(self.content)


@dataclass(frozen=True)
class Objects:
    """The objects of one run by name, and where its classes that have a file are.

    Attributes:
        root: the folder of the classes that became references; None: that of the spec.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    root: FilePath | None = None

    def __getitem__(self, reference: str) -> Any:
        """The object that a reference names. Raises RequestError if it was not given."""
        name = reference.removeprefix(OBJECT)
        if name not in self.values:
            message, hint = _missing(reference, [name])
            raise RequestError(message, hint=hint)
        value = self.values[name]
        return value.unpickled() if isinstance(value, Pickled) else value

    def without(self, name: str) -> Objects:
        """The others."""
        return replace(self, values={key: value for key, value in self.values.items() if key != name})

    def and_also(self, others: Objects) -> Objects:
        """Both; where they have the same name, the object of `others`."""
        return Objects({**self.values, **others.values}, others.root or self.root)


NO_OBJECTS = Objects()


def names_of(spec: Spec) -> list[str]:
    """The names of the objects of a spec."""
    return list(dict.fromkeys(reference.removeprefix(OBJECT) for _, reference, _ in marked(spec, GivenObject)))


def missing_objects(spec: Spec, given: Objects) -> Iterator[tuple[Path, tuple[str, str]]]:
    """The objects that a spec names and that were not given: each key, with message and hint."""
    names = names_of(spec)
    for path, reference, _ in marked(spec, GivenObject):
        if reference.removeprefix(OBJECT) not in given.values:
            yield path, _missing(reference, names)


def require_objects(spec: Spec, given: Objects) -> None:
    """Raise RequestError for all objects that a spec names and that were not given."""
    if found := list(missing_objects(spec, given)):
        raise RequestError.of(tuple(Problem(*fault, key=key_text(path)) for path, fault in found))


def how_to_give(names: Iterable[str]) -> str:
    """The arguments that give these objects again: `model=..., data=...`."""
    return ", ".join(f"{name}=..." for name in names)


def _missing(reference: str, names: Iterable[str]) -> tuple[str, str]:
    return (
        f"`{reference}` is an object that a Python program gave, and is in no file",
        f"give it again in Python: alray.load_run(FOLDER, {how_to_give(names)}) has `resume`, `evaluate` and the others",
    )
