"""Looks for the class that a `python:` reference names, in the syntax tree of its module. Nothing is imported or run.

A module can define names that its text does not show: by `globals()` or `exec`, by a `__getattr__` of its own, or by a
star import from an installed package. Then the class counts as found, and only loading it tells.
"""

from __future__ import annotations

import ast
import sys
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, PathFinder
from importlib.util import decode_source
from pathlib import Path

from alray.schedules.micro_batches import Fault
from alray.spec.own_code import parse_python_reference
from alray.spec.section import nearest


class ClassFinder:
    """Looks for classes and functions of the user."""

    def __init__(self, root: Path, *, allow_elsewhere: bool) -> None:
        """root: the folder of the spec. allow_elsewhere: whether modules may be elsewhere on `sys.path`."""
        self._root = root.resolve()
        self._allow_elsewhere = allow_elsewhere

    def __call__(self, reference: str) -> Fault | None:
        """Return message and hint if the class that a reference names cannot be found. Raises ValueError if the text
        is no reference."""
        parsed = parse_python_reference(reference)
        top = parsed.module.partition(".")[0]
        if is_reserved(top):
            return name_is_taken(reference, top)
        if self._find(top) is None:
            elsewhere = self._allow_elsewhere and PathFinder.find_spec(top) is not None
            return None if elsewhere else no_module(reference, top, self._root)
        fault = self._look(parsed.module, parsed.name, frozenset())
        return None if fault is None else (f"`{reference}`: {fault[0]}", fault[1])

    def _find(self, module: str) -> Path | None:
        return module_file(self._root, module)

    def _look(self, module: str, name: str, seen: frozenset[tuple[str, str]]) -> Fault | None:
        """Look for a name in a module, and in the user's other modules from which that module imports it."""
        file = self._find(module)
        if file is None:
            return f"there is no module `{module}` in {self._root}", "correct its name, or write the module"
        if (module, name) in seen or file.suffix in EXTENSION_SUFFIXES:
            return None  # modules that import from each other; a compiled module
        names = _Names(module if file.is_dir() or file.name == "__init__.py" else module.rpartition(".")[0])
        if file.is_file():
            try:
                names.visit(ast.parse(decode_source(file.read_bytes())))
            except (SyntaxError, ValueError, OSError) as error:  # ValueError: not text
                line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
                said = error.msg if isinstance(error, SyntaxError) else str(error)
                return f"{file}{line} cannot be read as Python: {said}", "correct the module"
        if name in names.defined or names.dynamic or self._find(f"{module}.{name}") is not None:
            return None
        sources = [names.imported[name]] if name in names.imported else [(star, name) for star in names.stars]
        if any(self._find(source.partition(".")[0]) is None for source, _ in sources):
            return None  # it comes from an installed package
        faults = [self._look(source, original, seen | {(module, name)}) for source, original in sources]
        if any(fault is None for fault in faults):
            return None
        if name in names.imported:
            return faults[0]
        meant = nearest(name, names.defined)
        hint = f"did you mean `{meant}`?" if meant is not None else "name a class or function of that module"
        return f"module `{module}` has no `{name}`", hint


class _Names(ast.NodeVisitor):
    """The names that a module defines at its top level.

    imported: for each name that comes from another module, this module and the name there. stars: modules of which all
    names are imported. dynamic: whether there may be names that the text does not show.
    """

    def __init__(self, package: str) -> None:
        """package: the package in which relative imports begin."""
        self._package = package
        self.defined: set[str] = set()
        self.imported: dict[str, tuple[str, str]] = {}
        self.stars: list[str] = []
        self.dynamic = False

    def visit_ClassDef(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.defined.add(node.name)
        self.dynamic |= node.name == "__getattr__"
        for inner in ast.walk(node):
            if isinstance(inner, ast.Global):
                self.defined.update(inner.names)
            self.dynamic |= isinstance(inner, ast.Name) and inner.id in ("globals", "exec")

    visit_FunctionDef = visit_ClassDef
    visit_AsyncFunctionDef = visit_ClassDef

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.defined.add(node.id)
        self.dynamic |= node.id in ("globals", "locals", "vars", "exec", "eval", "setattr")

    def visit_Import(self, node: ast.Import) -> None:
        self.defined.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        source = imported_from(node, self._package)
        for alias in node.names:
            if alias.name == "*":
                self.stars.append(source)
            else:
                self.imported[alias.asname or alias.name] = (source, alias.name)


def module_file(root: Path, module: str) -> Path | None:
    """The file of a module below `root`; its folder if it is a package without `__init__.py`; None if there is none."""
    stem = root.joinpath(*module.split("."))
    suffixes = [*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES]
    files = [stem / "__init__.py", *(stem.with_name(stem.name + suffix) for suffix in suffixes)]
    return next((file for file in files if file.is_file()), stem if stem.is_dir() else None)


def imported_from(node: ast.ImportFrom, package: str) -> str:
    """The dotted module that `from ... import` names. package: the package in which relative imports begin."""
    around = package.split(".")
    parts = [*around[: len(around) - node.level + 1], *filter(None, [node.module])] if node.level else [node.module]
    return ".".join(part for part in parts if part)


def is_reserved(top: str) -> bool:
    """Whether a module of this name belongs to Python or alray."""
    return top in sys.stdlib_module_names or top == "alray"


def name_is_taken(reference: str, top: str) -> Fault:
    """Return message and hint for a module that would replace one that Python or a library uses."""
    return (
        f"`{reference}`: `{top}` is also a module of Python or of an installed package",
        "give the file next to the spec another name",
    )


def no_module(reference: str, top: str, root: Path) -> Fault:
    """Return message and hint for a module that is not in the folder of the spec."""
    return (
        f"`{reference}`: there is no module `{top}` in {root}",
        "put it next to the spec, or allow code from other places with --allow-code",
    )
