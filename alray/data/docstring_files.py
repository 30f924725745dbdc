"""Docstrings read off the source files of installed packages; nothing is imported."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import inspect
import platform
import re
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from alray.errors import DataError

SHORTEST = 60
"""Characters; shorter docstrings say too little."""
LONGEST = 2000
"""Characters; the rest is cut off."""

_NAMES = re.compile(r"\b(?:scikit-learn|numpy|np|scipy|sklearn|scikit|python)\b", re.IGNORECASE)
_PASSED_OVER = {"test", "tests", "idle_test", "externals", "site-packages", "dist-packages"}
_ADDERS = {"add_newdoc", "add_docstring", "add_newdoc_for_scalar_type"}
"""Functions that NumPy and SciPy give docstrings to what is written in C with."""


@dataclass(frozen=True)
class Library:
    """One class: its name, its version, and the folder of its source files."""

    name: str
    version: str
    folder: Path


def installed_libraries() -> tuple[Library, ...]:
    """The standard library, NumPy, SciPy and scikit-learn. Raises DataError where one is not installed."""
    return (
        Library("standard_library", platform.python_version(), Path(sysconfig.get_paths()["stdlib"])),
        _package("numpy", "numpy"),
        _package("scipy", "scipy"),
        _package("scikit_learn", "sklearn"),
    )


def _package(name: str, module: str) -> Library:
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        raise DataError(
            f"the package {module} is not installed, and its docstrings are a class",
            key="data.source",
            mend=f"pip install {name.replace('_', '-')}",
        )
    return Library(name, importlib.metadata.version(name), Path(found.origin).parent)


def documents(libraries: Sequence[Library]) -> list[tuple[str, int]]:
    """(text, number of its library) of every document, sorted by text, each text once.

    A text has SHORTEST characters at least, and LONGEST at most, after names that tell the library are removed. One
    that stands in several libraries (they carry copies of one another's files) is left out.
    """
    owners: dict[str, set[int]] = {}
    for label, library in enumerate(libraries):
        for path in _files(library.folder):
            for docstring in _docstrings(path):
                text = _NAMES.sub("", docstring).strip()[:LONGEST]
                if len(text) >= SHORTEST:
                    owners.setdefault(text, set()).add(label)
    return sorted((text, labels.pop()) for text, labels in owners.items() if len(labels) == 1)


def _files(folder: Path) -> Iterator[Path]:
    """Source files without tests, other people's packages within, and what else is installed there."""
    for path in folder.rglob("*.py"):
        if _PASSED_OVER.isdisjoint(path.relative_to(folder).parts):
            yield path


def _docstrings(path: Path) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # escapes in the packages' own strings
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            return  # a file of another Python, such as a template, has no docstrings
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield docstring
        elif isinstance(node, ast.Call) and _name(node.func) in _ADDERS:
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield inspect.cleandoc(part.value)


def _name(function: ast.expr) -> str:
    """`add_newdoc` of both `add_newdoc(...)` and `_core.add_newdoc(...)`."""
    return ast.unparse(function).rpartition(".")[2]
