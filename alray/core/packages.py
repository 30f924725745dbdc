"""Names that installed packages provide to specs, as entry points. They are read without importing a package."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from alray.core.errors import FAULTS_OF_USER_CODE, SpecError


def imported(package: str, key: str) -> Any:
    """A package that an extra of the same name installs. Raises SpecError.

    Args:
        key: of the spec that needs it.
    """
    install = f"pip install 'alray[{package}]'"
    try:
        return import_module(package)
    except FAULTS_OF_USER_CODE as error:
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            raise SpecError(f"{package} is not installed", key=key, hint=install) from error
        raise SpecError(
            f"{package} cannot be imported: {type(error).__name__}: {error}",
            key=key,
            hint=f"install it again, with what it needs: {install}",
        ) from error


@dataclass(frozen=True)
class Provided:
    """A name that an installed package provides.

    Attributes:
        group: of entry points, such as `alray.methods`.
        module: dotted, where the class is.
        attribute: the class in that module.
        package: the distribution, such as `my-package`.
    """

    group: str
    name: str
    module: str
    attribute: str
    package: str
    version: str

    @property
    def reference(self) -> str:
        """`group:name`, by which `alray.config.user_code` loads the class."""
        return f"{self.group}:{self.name}"

    @property
    def origin(self) -> str:
        """The package with its version."""
        return f"{self.package} {self.version}"


def provided(group: str) -> Mapping[str, tuple[Provided, ...]]:
    """All names of a group. A name that several packages provide has several entries."""
    return _provided(tuple(sys.path), group)


@cache
def _provided(path: tuple[str, ...], group: str) -> dict[str, tuple[Provided, ...]]:
    """All names of a group. Reading them takes some hundredths of a second.

    Args:
        path: `sys.path`, where the packages are.
    """
    names: dict[str, tuple[Provided, ...]] = {}
    for each in entry_points(group=group):
        assert each.dist is not None  # of those that are installed it is known
        one = Provided(group, each.name, each.module, each.attr or "", each.dist.name, each.dist.version)
        names[one.name] = (*names.get(one.name, ()), one)
    return names


def clash(found: tuple[Provided, ...]) -> tuple[str, str] | None:
    """Message and hint if several packages provide a name."""
    if len(found) < 2:
        return None
    packages = " and ".join(sorted(each.origin for each in found))
    return f"several packages provide `{found[0].name}`: {packages}", "uninstall all but one of them"


def require(reference: str, origin: str | None = None) -> Provided:
    """The name that a reference `group:name` stands for. Raises SpecError if not exactly one package provides it.

    Args:
        origin: the package and its version from which a run had it.
    """
    group, _, name = reference.partition(":")
    found = provided(group).get(name, ())
    if not found:
        before = "" if origin is None else f"; this run had it from {origin}"
        hint = "install the package that does" if origin is None else f"install {origin}"
        raise SpecError(f"no installed package provides `{name}` to {group}{before}", hint=hint)
    if fault := clash(found):
        raise SpecError(fault[0], hint=fault[1])
    return found[0]
