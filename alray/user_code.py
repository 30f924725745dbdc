"""A user's own blocks and data sources: `python:package.module.Class`, loaded from the spec's directory tree."""

from __future__ import annotations

import importlib
import shutil
import sys
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from alray.errors import SpecError
from alray.spec.own_code import parse_python_reference

FAULTS_OF_USER_CODE: tuple[type[Exception], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    ImportError,
    LookupError,
    MemoryError,
    NameError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""Every family of the standard library's errors, save those that end a process."""

_roots: set[Path] = set()
"""Directories that this process loaded user code from."""


class UserCode:
    """Loads what `python:` references name, from one directory, or from anywhere where that is allowed."""

    def __init__(self, root: Path, *, allow_elsewhere: bool = False) -> None:
        """root: the directory of the spec, or the copy of its code in a run folder."""
        self.root = root.resolve()
        self.allow_elsewhere = allow_elsewhere

    def __call__(self, reference: str) -> Any:
        """The object a reference names. Raises SpecError where it is not there, fails to import or is not allowed."""
        parsed = parse_python_reference(reference)
        top = parsed.module.partition(".")[0]
        importlib.invalidate_caches()
        if self._find(top) is not None:
            self._refuse_a_taken_name(reference, top)
            self._come_first(top)
        elif not self.allow_elsewhere:
            raise SpecError(
                f"`{reference}`: there is no module `{top}` in {self.root}",
                mend="put it beside the spec, or pass --allow-code to load code from elsewhere",
            )
        try:
            module = importlib.import_module(parsed.module)
        except FAULTS_OF_USER_CODE as error:
            raise SpecError(
                f"`{reference}` cannot be imported: {type(error).__name__}: {error}",
                mend="mend the module, or install what it needs",
            ) from error
        if not hasattr(module, parsed.name):
            raise SpecError(
                f"`{reference}`: module `{parsed.module}` has no `{parsed.name}`",
                mend="name a class or function of that module",
            )
        return getattr(module, parsed.name)

    def copy_used(self, target: Path) -> None:
        """Copy every module that was loaded from the root, so that a run folder can be resumed as it was started."""
        for module in list(sys.modules.values()):
            path = _own_file(module)
            if path is not None and path.is_relative_to(self.root):
                copy = target / path.relative_to(self.root)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)

    def _find(self, top: str) -> ModuleSpec | None:
        return PathFinder.find_spec(top, [str(self.root)])

    def _refuse_a_taken_name(self, reference: str, top: str) -> None:
        """Loading it would take the place of a module that Python or a library goes on using."""
        loaded = sys.modules.get(top)
        place = getattr(loaded, "__file__", None)
        installed = place is not None and "site-packages" in Path(place).parts
        if top in sys.stdlib_module_names or top == "alray" or installed:
            raise SpecError(
                f"`{reference}`: `{top}` is also the name of a module of Python or of an installed package",
                mend="give the file beside the spec another name",
            )

    def _come_first(self, top: str) -> None:
        """Have imports find this directory's modules before those of the same name anywhere else.

        One process may load code from several directories, a spec's and a run folder's copy of it for example; what
        such modules import from one another must be of one directory too.
        """
        _roots.add(self.root)
        owned = {module.__name__.partition(".")[0] for module in list(sys.modules.values()) if _in_a_root(module)}
        for name in owned | {top}:
            here, loaded = self._find(name), sys.modules.get(name)
            if here is not None and loaded is not None and _places(here) != _places(loaded.__spec__):
                for part in [part for part in sys.modules if part == name or part.startswith(f"{name}.")]:
                    del sys.modules[part]
        if sys.path[:1] != [str(self.root)]:
            sys.path[:] = [str(self.root), *(entry for entry in sys.path if entry != str(self.root))]


def _own_file(module: ModuleType) -> Path | None:
    """The file of a module that a user may have written; None for alray's, an installed one, or one without a file."""
    place = getattr(module, "__file__", None)
    if place is None or module.__name__ == "__main__" or module.__name__.partition(".")[0] == "alray":
        return None
    return _source(place)


@cache
def _source(place: str) -> Path | None:
    """The Python file at `place`, unless it is an installed one.

    Kept, because it is asked for every module of the process, thousands with torch, each time a block is built.
    """
    if not Path(place).is_absolute():  # torch has modules without a file that name one all the same
        return None
    path = Path(place).resolve()
    return path if path.suffix == ".py" and "site-packages" not in path.parts else None


@cache
def _folders(path: Path) -> frozenset[Path]:
    """Every folder that a file is in, near or far."""
    return frozenset(path.parents)


def _in_a_root(module: ModuleType) -> bool:
    path = _own_file(module)
    return path is not None and not _roots.isdisjoint(_folders(path))


def _places(spec: ModuleSpec | None) -> list[Path]:
    """Where a module's code lies: its file, or a namespace package's directories."""
    if spec is None:
        return []
    origin = [spec.origin] if spec.origin is not None else list(spec.submodule_search_locations or [])
    return [Path(place).resolve() for place in origin]
