"""`alray.core.compat` has every private part of torch, Ray and other libraries that alray uses, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

import alray
from alray.core.compat import PRIVATE, Private
from alray.core.errors import RequestError

PACKAGE = Path(alray.__file__).parent
OF_PYTHON = {"_config", "_exit", "_getframe", "_inheriting", "_launch", "_make", "_proc_member", "_replace"}
OF_PYTHON |= {"_run_exitfuncs", "_typeshed"}
_BY_NAME = ("getattr", "setattr", "hasattr", "delattr")


@pytest.mark.parametrize("key", PRIVATE)
def test_the_installed_versions_have_it(key: str) -> None:
    if key == "ProcessGroupNCCL" and not torch.distributed.is_nccl_available():
        pytest.skip("this torch is built without NCCL")
    pytest.importorskip(PRIVATE[key].library)
    PRIVATE[key].load()


def test_no_other_private_name_of_a_library_is_used() -> None:
    listed = {name for private in PRIVATE.values() for name in _names(private)} | OF_PYTHON
    used = {
        f"{file.relative_to(PACKAGE)}:{line}: {name}"
        for file in PACKAGE.rglob("*.py")
        for line, name in _foreign(ast.parse(file.read_text(encoding="utf-8")))
        if name not in listed
    }
    assert used == set(), "give each an entry in alray/core/compat.py"


@pytest.mark.parametrize("key", PRIVATE)
def test_each_is_used(key: str) -> None:
    private = PRIVATE[key]
    words = [part.split(".")[-1] for part in private.parts]
    if private.made is None:
        words.append(key)
    assert [word for word in words if not re.search(rf"(?<!\w){re.escape(word)}(?!\w)", _code())] == []


def test_an_attribute_that_a_new_version_lacks_is_named() -> None:
    private = Private("torch.nn", "LSTM", parts=("_flat_weights", "_gone"), made=lambda kind: kind(1, 1))
    with pytest.raises(RequestError, match=r"^torch .* has no `torch.nn.LSTM` as alray needs it: .*`?_gone"):
        private.load()


def test_a_library_that_does_not_load_is_told_too() -> None:
    """As a torchvision that does not fit to torch."""

    def raises(kind: object) -> object:
        raise RuntimeError("operator torchvision::nms does not exist")

    with pytest.raises(RequestError, match="operator torchvision::nms does not exist"):
        Private("torch.nn", "Module", parts=("x",), made=raises).load()


@cache
def _code() -> str:
    """All of alray but the list itself."""
    return "\n".join(file.read_text(encoding="utf-8") for file in PACKAGE.rglob("*.py") if file.name != "compat.py")


def _names(private: Private) -> Iterator[str]:
    for path in (private.module, private.name, *private.parts):
        yield from (name for name in path.split(".") if _is_private(name))


def _foreign(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of each private name that a file uses and does not define."""
    own = set(_defined(tree))
    for node in ast.walk(tree):
        for name in _private_in(node):
            if name not in own:
                yield node.lineno, name  # type: ignore[attr-defined]  # each of these has a line


def _private_in(node: ast.AST) -> list[str]:
    names: list[str] = []
    if isinstance(node, ast.Attribute) and not _is_self(node.value):
        names = [node.attr]
    elif isinstance(node, ast.Import):
        names = [part for each in node.names for part in each.name.split(".")]
    elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("alray"):
        names = [*(node.module or "").split("."), *(each.name for each in node.names)]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _BY_NAME:
        names = [str(each.value) for each in node.args[1:2] if isinstance(each, ast.Constant)]
    return [name for name in names if _is_private(name)]


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
            yield node.attr


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name.isidentifier()
