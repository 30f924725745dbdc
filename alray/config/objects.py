"""Objects that a Python program gave to a run: a spec names each `object:NAME`, after the section where it stands.

They are in no file. A pickle is made once, when the program calls alray, and unpickled in the processes of that run
alone: no run folder holds one. So a run is continued or evaluated only by a program that gives its objects again. Their
identity is that of what they hold: `Network.model_sha256`, and `contents` of the data.
"""

from __future__ import annotations

import operator
import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any, SupportsIndex

from alray.config.sections.grammar import marked
from alray.config.sections.own_code import OBJECT, GivenObject
from alray.config.sections.paths import Path
from alray.config.sections.spec import Spec
from alray.core.errors import RequestError
from alray.core.storage.location import Location

LARGEST = 1 << 30
"""Bytes of one object, or of one set of data. The program holds them, Ray's object store does once on each node, and a
stage while it makes the object of them."""
_IN_NO_FILE = "is an object that a Python program gave, and no file has it"


@dataclass(frozen=True)
class Pickled:
    """An object by value, as its pickle of this process's program."""

    content: bytes | memoryview

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """What Ray's object store holds, a process reads there: it gets a view of the bytes."""
        buffered = operator.index(protocol) >= 5
        return Pickled, (pickle.PickleBuffer(self.content) if buffered else bytes(self.content),)

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
            raise RequestError(f"`{reference}` {_IN_NO_FILE}", hint=f"give it in Python, by {how_to_give([name])}")
        value = self.values[name]
        return value.unpickled() if isinstance(value, Pickled) else value

    def without(self, name: str) -> Objects:
        """The others."""
        return replace(self, values={key: value for key, value in self.values.items() if key != name})

    def alone(self, name: str) -> Objects:
        """This one, if it was given."""
        return replace(self, values={key: value for key, value in self.values.items() if key == name})

    def and_also(self, others: Objects) -> Objects:
        """Both; where they have the same name, the object of `others`."""
        return Objects({**self.values, **others.values}, others.root or self.root)


NO_OBJECTS = Objects()


def names_of(spec: Spec) -> list[str]:
    """The names of the objects of a spec."""
    return list(dict.fromkeys(reference.removeprefix(OBJECT) for _, reference, _ in marked(spec, GivenObject)))


def missing_objects(given: Objects, spec: Spec) -> Iterator[tuple[Path, str, str]]:
    """The objects that a spec names and that were not given: each key, with message and hint."""
    for path, reference, _ in marked(spec, GivenObject):
        if (name := reference.removeprefix(OBJECT)) not in given.values:
            yield path, f"`{reference}` {_IN_NO_FILE}", f"give it in Python, by {how_to_give([name])}"


def require_objects(spec: Spec, given: Objects, run_dir: Location, besides: Collection[str] = ()) -> None:
    """Raise RequestError if objects that the spec of a run names were not given.

    Args:
        besides: names of those that are not needed.
    """
    names = [name for name in names_of(spec) if name not in besides]
    missing = [f"`{name}`" for name in names if name not in given.values]
    if missing:
        raise RequestError(
            f"this run was given objects by a Python program, and no file has them: {', '.join(missing)}",
            file=str(run_dir),
            hint=f'give them in Python: alray.load_run("{run_dir}", {how_to_give(names)}) resumes, evaluates and so on',
        )


def how_to_give(names: Iterable[str]) -> str:
    """The arguments that give these objects again: `model=..., **{"model.components[0]": ...}`."""
    return ", ".join(f"{name}=..." if name.isidentifier() else f'**{{"{name}": ...}}' for name in names)
