"""The files of a user's `python:` classes: their modules, and those that these import from the same folder.

Modules are read as syntax trees. Nothing is imported or run, so an import by a computed name is not seen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from importlib.util import decode_source
from pathlib import Path

from alray.config.loading.find_class import imported_from, is_reserved, module_file
from alray.config.sections.own_code import parse_python_reference


def own_files(references: Iterable[str], root: Path) -> set[Path]:
    """The files below `root` that these references need. Modules that are not below it are left out.

    Raises ValueError if a text is no reference.
    """
    waiting = [parse_python_reference(reference).module for reference in references]
    seen: set[str] = set()
    found: set[Path] = set()
    while waiting:
        module = waiting.pop()
        if module in seen or is_reserved(module.partition(".")[0]):
            continue
        seen.add(module)
        around, _, _ = module.rpartition(".")
        waiting += [around] if around else []
        file = module_file(root, module)
        if file is None or not file.is_file():  # installed, a name in a module, or a package without `__init__.py`
            continue
        found.add(file)
        if file.suffix == ".py":
            waiting += _imported(file, module if file.name == "__init__.py" else around)
    return found


def _imported(file: Path, package: str) -> Iterator[str]:
    """The modules that a file may import, at any depth.

    Args:
        package: where its relative imports begin.
    """
    try:
        tree = ast.parse(decode_source(file.read_bytes()))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deeply
        return  # `class_fault` tells what is wrong in the file of a class; another file may never be imported
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = imported_from(node, package)
            yield from (source, *(f"{source}.{alias.name}" for alias in node.names))
