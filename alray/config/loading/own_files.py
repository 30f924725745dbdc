"""The files of a user's `python:` classes: their modules, and those that these import from the same folder.

Modules are read as syntax trees. Nothing is imported or run, so an import by a computed name is not seen.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, PathFinder
from importlib.util import decode_source, resolve_name
from pathlib import Path

from alray.config.sections.own_code import PREFIX, parse_python_reference
from alray.planning.schedules.micro_batches import Fault


def module_fault(reference: str, root: Path, *, allow_elsewhere: bool) -> Fault | None:
    """Message and hint if there is no file of the module that a reference names. Whether it has the class, only its
    import tells.

    Args:
        root: the folder of the spec.
        allow_elsewhere: whether modules may be in other folders of `sys.path`.

    Raises:
        ValueError: if the text is no reference.
    """
    module, root = parse_python_reference(reference).module, root.resolve()
    top = module.partition(".")[0]
    if is_reserved(top):
        return name_is_taken(reference, top)
    if module_file(root, top) is None:
        elsewhere = allow_elsewhere and PathFinder.find_spec(top) is not None
        return None if elsewhere else no_module(reference, top, root)
    if module_file(root, module) is None:
        return f"`{reference}`: there is no module `{module}` in {root}", "correct its name, or write the module"
    return None


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
        return  # the import of a class tells what is wrong; another file may never be imported
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            try:
                source = resolve_name("." * node.level + (node.module or ""), package)
            except ImportError:  # it leads out of the package, so it would fail
                continue
            yield from (source, *(f"{source}.{alias.name}" for alias in node.names))


def module_file(root: Path, module: str) -> Path | None:
    """The file of a module below `root`; its folder if it is a package without `__init__.py`; None if there is none."""
    stem = root.joinpath(*module.split("."))
    suffixes = [*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES]
    files = [stem / "__init__.py", *(stem.with_name(stem.name + suffix) for suffix in suffixes)]
    return next((file for file in files if file.is_file()), stem if stem.is_dir() else None)


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
