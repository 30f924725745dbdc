"""What holds for the package as a whole: what imports cost, the family of errors, names, lengths, docstrings."""

from __future__ import annotations

import ast
import importlib
import json
import pickle
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import alray
from alray.core.errors import AlrayError, Problem
from alray.core.run_folder.records import json_schema

PACKAGE = Path(alray.__file__).parent
ROOT = PACKAGE.parent
FILES = sorted(PACKAGE.rglob("*.py"))
VAGUE = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "misc"}

EXIT_CODES = {
    "AlrayError": 1,
    "RequestError": 2,
    "SpecError": 2,
    "PlanError": 2,
    "DataError": 2,
    "DataMissing": 2,
    "CheckpointError": 2,
    "RunError": 1,
    "UserCodeError": 1,
    "StageError": 1,
    "ProcessLost": 1,
    "NodesLost": 1,
    "SystemFault": 1,
    "DiskFault": 1,
    "ChannelError": 1,
    "MessageError": 1,
    "ConnectionLost": 1,
    "NonFiniteLoss": 1,
}


def modules_after(program: str) -> set[str]:
    """Top-level names of the modules that a fresh Python holds after a program; `cli/test_main.py` has the commands."""
    code = f"import sys\n{program}\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_the_package_itself_imports_only_the_standard_library() -> None:
    grown = modules_after("import alray") - modules_after("")
    assert "alray" in grown
    assert grown - {"alray"} <= sys.stdlib_module_names


def test_what_starts_ray_imports_no_torch() -> None:
    """Otherwise Ray, and the stages' processes on it, would start only after that."""
    assert "torch" not in modules_after(
        "import alray.orchestrate, alray.runtime.graph.cluster, alray.runtime.graph.processes"
    )


def test_the_committed_schema_of_records_is_in_step() -> None:
    committed = json.loads((ROOT / "docs" / "records.schema.json").read_text(encoding="utf-8"))
    assert committed == json_schema(), "alray schema --records > docs/records.schema.json"


def family() -> Iterator[type[AlrayError]]:
    """The root of the errors and every class below it, wherever it is defined."""
    for module in pkgutil.walk_packages([str(PACKAGE)], "alray."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    waiting: list[type[AlrayError]] = [AlrayError]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.partition(".")[0] == "alray":
            yield kind


def test_every_error_has_the_exit_code_that_is_documented() -> None:
    assert {kind.__name__: kind.exit_code for kind in family()} == EXIT_CODES


def test_every_error_is_pickled_whole() -> None:
    for kind in family():
        error = kind("it is wrong", hint="correct it", file="x.yaml", line=3, key="run.epochs")
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is kind
        assert copy.problems == (Problem("it is wrong", "correct it", "x.yaml", 3, "run.epochs"),)
        assert str(copy) == str(error) == "x.yaml:3: run.epochs: it is wrong; correct it"
        several = kind.of((Problem("one"), Problem("two", key="seed")))
        assert pickle.loads(pickle.dumps(several)).problems == several.problems


def trees() -> Iterator[tuple[str, ast.Module]]:
    for file in FILES:
        yield file.relative_to(PACKAGE).as_posix(), ast.parse(file.read_text(encoding="utf-8"))


def test_one_file_alone_names_torchs_module_of_one_kind_of_gpu() -> None:
    named = {file.relative_to(PACKAGE).as_posix() for file in FILES if "torch.cuda" in file.read_text(encoding="utf-8")}
    assert named == {"core/accelerator.py"}


def definitions(*kinds: type[ast.stmt]) -> Iterator[tuple[str, int]]:
    """Every definition of these kinds, as `file: name`, and how many lines it has."""
    for file, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and isinstance(node, kinds):
                assert node.end_lineno is not None
                yield f"{file}: {node.name}", node.end_lineno - node.lineno + 1


def test_every_module_says_what_it_is_about() -> None:
    assert [file for file, tree in trees() if not ast.get_docstring(tree)] == []


@pytest.mark.full
def test_no_module_and_no_class_has_a_name_that_says_nothing() -> None:
    words = {file: set(file.removesuffix(".py").replace("/", "_").split("_")) for file, _ in trees()}
    assert [file for file, parts in words.items() if parts & VAGUE] == []
    classes = [name for name, _ in definitions(ast.ClassDef)]
    assert [name for name in classes if name.lower().endswith(("manager", "helper", "utils"))] == []
