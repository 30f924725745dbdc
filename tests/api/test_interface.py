"""`import alray`: its names, what they cost, and that they stay what they are."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import alray
from alray.api.trained import Trained
from alray.cli import main

STUB = Path(alray.__file__).with_suffix(".pyi")


def test_the_stub_has_the_types_of_every_name() -> None:
    tree = ast.parse(STUB.read_text(encoding="utf-8"))
    imported = {
        alias.name: f"{node.module}" for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    for renamed in (ast.unparse(node).split(" = ") for node in tree.body if isinstance(node, ast.Assign)):
        imported[renamed[0]] = imported.pop(renamed[1])
    assert imported == {name: getattr(alray, name).__module__ for name in alray.__all__ if name != "__version__"}


def test_every_name_is_there_and_says_what_it_does() -> None:
    assert set(alray.__all__) <= set(dir(alray))
    assert {"Block", "LocalComponent", "Method", "Source", "Task", "Tracker"} <= set(alray.__all__)
    assert {"VectorTask", "WholeTally", "classifier", "pass_on", "read_scores"} <= set(alray.__all__)
    assert all(getattr(alray, name).__doc__ for name in alray.__all__ if name != "__version__")


@pytest.mark.full
def test_names_are_loaded_without_torch_ray_and_pandas() -> None:
    program = (
        "import sys, alray\n"
        "of_methods = {'Block', 'LocalComponent', 'Method', 'classifier', 'pass_on', 'read_scores'}\n"
        "of_tasks = {'Source', 'Task', 'ValuesPrediction', 'VectorTask', 'WholeTally'}\n"
        "for name in {*alray.__all__} - of_methods - of_tasks: getattr(alray, name)\n"
        "print(sorted({'torch', 'ray', 'pandas', 'altair'} & set(sys.modules)))\n"
        # A folder of the package has the name of a function, and Python sets that name to a module.
        "import alray.runtime.options as options\n"
        "import alray.planning.prediction.costs, alray.studies.records\n"
        "print(callable(alray.run), callable(alray.plan), callable(alray.study), alray.runtime.options is options)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\nTrue True True True\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(alray, "rnu")


@pytest.mark.full
def test_an_import_changes_nothing_of_its_program() -> None:
    program = "import os\nbefore = dict(os.environ)\nimport alray, alray.api.runs\nprint(dict(os.environ) == before)\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


_OF_A_TERMINAL = {"json", "events", "svg", "compare", "dry_run", "resume", "map_ways"}
_OF_A_MAP = {"methods", "micro_batches", "memory", "steps", "batch_sizes", "output"}
"""How a command shows what it did, and what is a function of its own in Python."""
_OF_PYTHON = {"self", "progress", "callbacks"}


@pytest.mark.parametrize(
    ("command", "functions"),
    [
        (main.run, [alray.run]),
        (main.resume, [alray.Run.resume]),
        (main.reproduce, [alray.reproduce]),
        (main.plan, [alray.plan, alray.ways]),
        (main.study, [alray.study]),
        (main.predict, [alray.Run.trained, Trained.predict, Trained.generate]),
        (main.export, [alray.Run.trained, Trained.export]),
    ],
)
def test_a_function_takes_the_options_of_its_command(
    command: Callable[..., None], functions: list[Callable[..., object]]
) -> None:
    """By the same names, and with the same defaults."""

    def options(of: Callable[..., object], left_out: set[str]) -> dict[str, object]:
        parameters = inspect.signature(of).parameters
        return {
            name: each.default
            for name, each in parameters.items()
            if each.kind is each.KEYWORD_ONLY and name not in left_out
        }

    left_out = _OF_A_TERMINAL | _OF_A_MAP if command is main.plan else _OF_A_TERMINAL
    of_command, of_functions, positional = options(command, left_out), {}, set()
    for function in functions:
        objects = {"model", "data"} if function in (alray.run, alray.plan, alray.ways, alray.study) else set()
        of_functions |= options(function, _OF_PYTHON | objects)
        positional |= set(inspect.signature(function).parameters)  # such as `format` and `output` of an export
    positional -= set(of_functions)
    assert {name: value for name, value in of_command.items() if name not in positional} == of_functions
