"""`alray.core.compat` has every private name of torch and Ray that alray uses, and no other; the private attributes of
their objects are listed here."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Iterator
from functools import cache
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import alray
from alray.core.compat import PRIVATE, Private
from alray.core.errors import RequestError

PACKAGE = Path(alray.__file__).parent
OF_PYTHON = {"_config", "_exit", "_getframe", "_inheriting", "_launch", "_make", "_proc_member", "_replace"}
OF_PYTHON |= {"_run_exitfuncs", "_typeshed"}
_BY_NAME = ("getattr", "setattr", "hasattr", "delattr")


def _words_of(function: Any) -> SimpleNamespace:
    """The names and texts in the code of a function, for attributes of objects that are not made just to look."""
    code = function.__code__
    return SimpleNamespace(**{str(word): None for word in (*code.co_names, *code.co_consts)})


ATTRIBUTES: dict[str, tuple[Callable[[Any], Any], tuple[str, ...]]] = {
    # Parts of a module under all their names, and putting others in their place.
    "torch.nn:Module": (
        lambda kind: kind(),
        (
            *("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"),
            *("_apply", "_load_from_state_dict"),
        ),
    ),
    # What is known of an exported model, where `load_state_dict` passes over it.
    "torch.nn:Linear": (lambda kind: kind(1, 1).state_dict(), ("_metadata",)),
    # Recurrent layers whose weights are swapped for ones without memory.
    "torch.nn:LSTM": (lambda kind: kind(1, 1), ("_flat_weights", "_flat_weight_refs")),
    # That a tensor without memory is a parameter.
    "torch.nn.parameter:_ParameterMeta": (lambda kind: _words_of(kind.__instancecheck__), ("_is_param",)),
    # Hooks that a copy of a parameter would lack; whether a tensor was changed in place.
    "torch:Tensor": (
        lambda kind: kind(),
        ("_backward_hooks", "_make_wrapper_subclass", "_post_accumulate_grad_hooks", "_version"),
    ),
    # Whether two tensors lie in the same memory.
    "torch:UntypedStorage": (lambda kind: kind(), ("_cdata",)),
    # Operations that read a number out of a tensor, and those that write to their arguments.
    "torch:ops": (
        lambda operations: operations,
        ("aten._local_scalar_dense", "aten._pack_padded_sequence", "aten.add.Tensor._schema"),
    ),
    # The module that torch.compile has compiled.
    "torch:compile": (lambda compiled: compiled(torch.nn.Identity()), ("_orig_mod",)),
    # A handler of signals that is not alray's.
    "torch.utils.data.dataloader:_MultiProcessingDataLoaderIter": (
        lambda kind: _words_of(kind.__init__),
        ("_worker_pids_set",),
    ),
    # The code of attention, which no saved config tells.
    "transformers.configuration_utils:PretrainedConfig": (lambda kind: kind(), ("_attn_implementation",)),
}
"""Where each is looked for, how such an object is made, and the attributes that it must have."""


@pytest.mark.parametrize("key", PRIVATE)
def test_the_installed_versions_have_it(key: str) -> None:
    if key == "ProcessGroupNCCL" and not torch.distributed.is_nccl_available():
        pytest.skip("this torch is built without NCCL")
    pytest.importorskip(PRIVATE[key].library)
    PRIVATE[key].load()


@pytest.mark.parametrize("place", ATTRIBUTES)
def test_objects_have_these_attributes(place: str) -> None:
    module, _, name = place.partition(":")
    pytest.importorskip(module.partition(".")[0])
    make, attributes = ATTRIBUTES[place]
    made = make(getattr(importlib.import_module(module), name))
    for attribute in attributes:
        attrgetter(attribute)(made)
        word = attribute.rpartition(".")[2]
        assert re.search(rf"(?<!\w){re.escape(word)}(?!\w)", _code()), f"nothing uses {attribute}"


def test_no_other_private_name_of_a_library_is_used() -> None:
    listed = {name for private in PRIVATE.values() for name in _names(private)} | OF_PYTHON
    listed |= {part for _, attributes in ATTRIBUTES.values() for each in attributes for part in each.split(".")}
    used = {
        f"{file.relative_to(PACKAGE)}:{line}: {name}"
        for file in PACKAGE.rglob("*.py")
        for line, name in _foreign(ast.parse(file.read_text(encoding="utf-8")))
        if name not in listed
    }
    assert used == set(), "give each an entry in alray/core/compat.py, or in ATTRIBUTES"


@pytest.mark.parametrize("key", PRIVATE)
def test_each_is_used(key: str) -> None:
    words = [part.split(".")[-1] for part in PRIVATE[key].parts] + [key]
    assert [word for word in words if not re.search(rf"(?<!\w){re.escape(word)}(?!\w)", _code())] == []


def test_an_attribute_that_a_new_version_lacks_is_named() -> None:
    private = Private("torch.nn", "LSTM", parts=("flatten_parameters", "_gone"))
    with pytest.raises(RequestError, match=r"^torch .* has no `torch.nn.LSTM` as alray needs it: .*`?_gone"):
        private.load()


def test_a_library_that_does_not_load_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a torchvision that does not fit to torch."""

    def raises(name: str) -> object:
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(importlib, "import_module", raises)
    with pytest.raises(RequestError, match="operator torchvision::nms does not exist"):
        Private("torch.nn", "Module").load()


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
