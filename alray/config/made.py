"""Finds the code of the parts that a spec chooses: of alray, of an installed package or of the user."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import alray
from alray.config.sections.kind import Kind, PartSection
from alray.config.sections.own_code import OwnCode, reference_to
from alray.config.user_code import own_place, own_problem
from alray.core.errors import FAULTS_OF_USER_CODE, AlrayError, Problem, SpecError
from alray.core.parts import module_of

Load = Callable[[str], Any]
"""Takes a reference to a class, as from `reference_to`, to that class. `alray.config.user_code.UserCode` is one."""


def no_user_code(reference: str) -> Any:
    """Loads nothing: for callers whose part is alray's."""
    raise AssertionError(f"{reference} is loaded where no code of the user can be")


def code_of(kind: Kind[Any], section: PartSection, load: Load, *, implementation: str | None = None) -> Any:
    """The code of a part: what `implementation` names, or the class of the user or of a package. Raises as `load`.

    Args:
        implementation: None: that of the section.
    """
    name = getattr(section, kind.key)
    if isinstance(section, OwnCode):
        return load(reference_to(name, kind.group))
    *file, attribute = (implementation or section.implementation).split(":")
    return getattr(module_of(kind.name, name, *file), attribute)


def class_of(
    kind: Kind[Any], section: PartSection, base: type, load: Load, *, key: str, implementation: str | None = None
) -> Any:
    """The class of a part, derived from `base`.

    Args:
        key: of the spec, for messages.
        implementation: as for `code_of`.

    Raises:
        SpecError: if a class of the user does not derive from `base`, or as `load`.
    """
    found = code_of(kind, section, load, implementation=implementation)
    if not (isinstance(found, type) and issubclass(found, base)):
        public = (f"alray.{name}" for name in dir(alray) if getattr(alray, name) is base)
        named_as = next(public, f"{base.__module__}.{base.__qualname__}")
        raise SpecError(
            f"`{getattr(section, kind.key)}` is not a subclass of {named_as}",
            key=key,
            hint="derive it from that class; its docstring says what to define",
        )
    return found


@contextmanager
def making(
    what: str, called: str, *, key: str, kind: type | None = None, fault: str = "cannot be made"
) -> Iterator[None]:
    """Inside, where a class of the user may be called, what it raises becomes a SpecError, at the line that raised it.

    Args:
        kind: the class. Where no line of it raised, as for wrong arguments, the error is at its constructor.
        what: is made, such as "task `python:mine.Quantile`".
        called: how, as the hint says it.
        fault: what it cannot do if it raises.
    """
    try:
        yield
    except AlrayError:
        raise
    except FAULTS_OF_USER_CODE as error:
        message = f"{what} {fault}: {type(error).__name__}: {error}"
        problem = own_problem(error, message, key=key, hint=called)
        if problem is None:
            file, line = own_place(getattr(kind, "__init__", None)) or (None, None)
            problem = Problem(message, called, file, line, key)
        raise SpecError.of((problem,)) from error
