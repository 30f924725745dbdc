"""Looks for the class that a `python:` reference names, in the symbol table of its module. Nothing is imported or run.

A name that a module imports counts as found. So does any name of a module whose text need not show all of them, because
of a star import, `globals()`, `exec` or a `__getattr__` of the module. Then only loading the class tells.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, PathFinder
from importlib.util import decode_source
from pathlib import Path
from symtable import SymbolTable, symtable

from alray.config.sections.own_code import PREFIX, parse_python_reference
from alray.config.sections.section import nearest
from alray.planning.schedules.micro_batches import Fault

_HIDING = frozenset({"__getattr__", "eval", "exec", "globals", "locals", "setattr", "vars"})
"""Names at the top level of a module which may define others."""
_HIDING_INSIDE = frozenset({"exec", "globals"})
"""The same in its functions and classes."""
_STAR_IMPORT = re.compile(r"^\s*from\s+[\w.]+\s+import\s+\*", re.MULTILINE)


def class_fault(reference: str, root: Path, *, allow_elsewhere: bool) -> Fault | None:
    """Message and hint if the class or function that a reference names cannot be found.

    Args:
        root: the folder of the spec.
        allow_elsewhere: whether modules may be in other folders of `sys.path`.

    Raises:
        ValueError: if the text is no reference.
    """
    parsed, root = parse_python_reference(reference), root.resolve()
    top = parsed.module.partition(".")[0]
    if is_reserved(top):
        return name_is_taken(reference, top)
    if module_file(root, top) is None:
        elsewhere = allow_elsewhere and PathFinder.find_spec(top) is not None
        return None if elsewhere else no_module(reference, top, root)
    file = module_file(root, parsed.module)
    if file is None:
        return f"`{reference}`: there is no module `{parsed.module}` in {root}", "correct its name, or write the module"
    if file.suffix in EXTENSION_SUFFIXES or module_file(root, f"{parsed.module}.{parsed.name}") is not None:
        return None
    try:
        names = _names(file) if file.is_file() else set()
    except (SyntaxError, ValueError, OSError, RecursionError, MemoryError) as error:  # the last two: nested too deeply
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        return f"`{reference}`: {file}{line} cannot be read as Python: {message}", "correct the module"
    if names is None or parsed.name in names:
        return None
    meant = nearest(parsed.name, names)
    hint = f"did you mean `{meant}`?" if meant is not None else "name a class or function of that module"
    return f"`{reference}`: module `{parsed.module}` has no `{parsed.name}`", hint


def _names(file: Path) -> set[str] | None:
    """The names that a module defines or imports; None if there may be others, which its text does not show."""
    text = decode_source(file.read_bytes())
    module = symtable(text, str(file), "exec")
    inside = list(_inside(module))
    used = {name for table in inside for name in table.get_identifiers()}
    if _STAR_IMPORT.search(text) or _HIDING & set(module.get_identifiers()) or _HIDING_INSIDE & used:
        return None
    names = {symbol.get_name() for symbol in module.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    return names | {each.get_name() for table in inside for each in table.get_symbols() if each.is_declared_global()}


def _inside(table: SymbolTable) -> Iterator[SymbolTable]:
    """The symbol tables of functions and classes in this one, at any depth."""
    for inner in table.get_children():
        yield inner
        yield from _inside(inner)


def module_file(root: Path, module: str) -> Path | None:
    """The file of a module below `root`; its folder if it is a package without `__init__.py`; None if there is none."""
    stem = root.joinpath(*module.split("."))
    suffixes = [*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES]
    files = [stem / "__init__.py", *(stem.with_name(stem.name + suffix) for suffix in suffixes)]
    return next((file for file in files if file.is_file()), stem if stem.is_dir() else None)


def imported_from(node: ast.ImportFrom, package: str) -> str:
    """The dotted module that `from ... import` names.

    Args:
        package: the package in which relative imports begin.
    """
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
    if top == "__main__":  # a script, a notebook
        return (
            f"`{reference}`: no stage can import the script that is running",
            f"put the class into a separate file in {root}, and name it `{PREFIX}file.Class`",
        )
    return (
        f"`{reference}`: there is no module `{top}` in {root}",
        "put it next to the spec, or allow code from other folders with --allow-code",
    )
