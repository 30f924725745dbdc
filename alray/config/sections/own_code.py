"""Sections that name a class of the user, `python:package.module.Class`, or an object that a Python program gave,
`object:model`. Nothing is imported here."""

from __future__ import annotations

import keyword
import math
import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, GetCoreSchemaHandler, GetJsonSchemaHandler, WithJsonSchema
from pydantic_core import CoreSchema, core_schema

from alray.config.sections.section import Section, refusal
from alray.core.packages import clash, provided

PREFIX = "python:"
FORM = PREFIX + "package.module.Class"
OBJECT = "object:"
"""Begins the name of an object that a Python program gave (`alray.config.objects`)."""
LOSS = f"{OBJECT}loss"
"""The task of a loss and metrics that a Python program gave."""
OWN = (PREFIX, OBJECT)
"""How names begin that are neither alray's nor a package's."""


@dataclass(frozen=True)
class PythonReference:
    """A class by name.

    Attributes:
        module: its dotted module.
        name: the class in that module.
    """

    module: str
    name: str


def parse_python_reference(text: str) -> PythonReference:
    """Parse `python:package.module.Class`. Raises ValueError with the reason if the text does not have this form."""
    if not text.startswith(PREFIX):
        raise ValueError(f"`{text}` does not begin with `{PREFIX}`")
    parts = text.removeprefix(PREFIX).split(".")
    for part in parts:
        if not part.isidentifier() or keyword.iskeyword(part):
            raise ValueError(f"`{text}` does not have the form {FORM}: `{part}` is not a Python name")
    if len(parts) < 2:
        raise ValueError(f"`{text}` does not have the form {FORM}: the module is missing")
    return PythonReference(".".join(parts[:-1]), parts[-1])


def own_reference(text: str) -> str:
    """Return a reference as it is. Raises `refusal` if it does not have the form."""
    if re.fullmatch(rf"{OBJECT}[\w.\[\]]+", text):
        return text
    try:
        parse_python_reference(text)
    except ValueError as error:
        raise refusal(
            str(error), f"write {PREFIX} and the dotted name of a class, such as {PREFIX}my_module.MyClass"
        ) from error
    return text


def _finite(value: Any) -> Any:
    """Return a free value of the YAML file. NaN and infinities are refused at any depth."""
    if isinstance(value, float) and not math.isfinite(value):
        raise refusal(f"expected a finite number, got {value}", "write a finite number")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _finite(item)
    return value


@dataclass(frozen=True)
class OwnClass:
    """Marks the name of a class of the user. A value may also name something else, without the prefix."""

    def marks(self, value: Any) -> bool:
        """Whether a value of the field names such a class."""
        return str(value).startswith(PREFIX)


@dataclass(frozen=True)
class GivenObject:
    """Marks the name of an object that a Python program gave. A value may also name something else, without the
    prefix."""

    def marks(self, value: Any) -> bool:
        """Whether a value of the field names such an object."""
        return str(value).startswith(OBJECT)


def own_pattern(group: str | None) -> str:
    """The regular expression of the names of the user's classes, with those of the packages that are installed here.

    Args:
        group: of entry points; None: packages provide none.
    """
    names = [] if group is None else [re.escape(name).replace(r"\-", "-") for name in provided(group)]
    return "|".join([f"^{PREFIX}", *(f"^{name}$" for name in names)])


@dataclass(frozen=True)
class OfPackage:
    """Marks the name of a class of an installed package. The value may also be `python:package.module.Class`.

    Attributes:
        group: of entry points.
    """

    group: str

    def marks(self, value: Any) -> bool:
        """Whether a value of the field names a class of a package."""
        return not str(value).startswith(OWN)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "pattern": own_pattern(self.group)}

    def _checked(self, name: str) -> str:
        found = provided(self.group).get(name, ()) if self.marks(name) else ()
        if fault := clash(found):
            raise refusal(*fault)
        return name if found else own_reference(name)


Name = Annotated[str, WithJsonSchema({"type": "string", "pattern": rf"^{PREFIX}"}), OwnClass(), GivenObject()]
"""A class of the user, as text; with `OfPackage`, also the name of one of an installed package."""


def reference_to(name: str, group: str) -> str:
    """What loads the class of a `Name`: `python:package.module.Class` and `object:name` as they are, `group:name` of a
    package.

    Args:
        group: of entry points.
    """
    return name if name.startswith(OWN) else f"{group}:{name}"


FreeValue = Annotated[Any, AfterValidator(_finite)]


class FreeSection(Section):
    """A section whose further keys are the arguments of a class. Its subclasses set `extra="allow"`."""

    __pydantic_extra__: dict[str, FreeValue]

    @property
    def fields(self) -> dict[str, Any]:
        """The arguments of the class, by name."""
        return dict(self.__pydantic_extra__)


class OwnCode(FreeSection):
    """A section that names a class of the user or of an installed package."""
