"""What every command has: help in no time, exit codes, an object on standard output under --json."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from alray import __version__
from alray.cli.main import GROUPS, app
from alray.cli.terminal import shown


def imported(python: Callable[[str], Any], libraries: str, *arguments: str | Path) -> list[str]:
    """Which of these libraries one command line imports."""
    said = python(
        "import sys\n"
        "from alray.cli.main import execute\n"
        f"execute({[str(argument) for argument in arguments]!r})\n"
        f"print('imported', *sorted({{'{libraries}'}} & set(sys.modules)), file=sys.stderr)".replace("|", "', '")
    )
    assert said.code == 0 and said.out, said.err
    last = said.err.splitlines()[-1].split()
    assert last[0] == "imported"
    return last[1:]


def test_help_of_a_command_imports_neither_torch_nor_ray(python: Callable[[str], Any]) -> None:
    assert imported(python, "torch|ray|numpy|jinja2", "run", "--help") == []


@pytest.mark.few
@pytest.mark.parametrize(
    "words",
    [
        ("evaluate",),
        ("predict", "a.png"),
        ("predict", "--prompt", "a"),
        ("export", "--format", "onnx"),
        ("resume",),
        ("reproduce",),
    ],
)
def test_a_missing_run_is_told_before_torch_is_imported(python: Callable[[str], Any], words: tuple[str, ...]) -> None:
    command, *rest = words
    assert imported(python, "torch|ray", command, "nowhere", *rest, "--json") == []


@pytest.mark.full
def test_validate_and_schema_import_neither_torch_nor_ray(python: Callable[[str], Any], spec: Path) -> None:
    heavy = "torch|torchvision|ray|numpy|rich|pydantic"
    assert imported(python, heavy, "validate", spec.resolve()) == ["pydantic"]
    assert imported(python, heavy, "schema") == ["pydantic"]


@pytest.mark.full
def test_plan_imports_nothing_that_it_does_not_use(python: Callable[[str], Any], spec: Path) -> None:
    text = spec.read_text(encoding="utf-8")
    digits = "data: {source: digits, batch_size: 10}"
    spec.write_text("\n".join(digits if line.startswith("data:") else line for line in text.splitlines()))
    unused = "ray|sklearn|tensorboardX|torchvision|torchtext|jinja2|torch.distributed.pipelining|mlflow|wandb"
    assert imported(python, unused, "plan", spec.resolve()) == []


WATCHED = """
import os, sys

class Watched:
    def write(self, text):
        os.write(1, f"{text.strip()} | {sorted({'torch', 'ray', 'numpy'} & set(sys.modules))}\\n".encode())
        os._exit(0)

    def isatty(self):
        return False

sys.stderr = Watched()
from alray.cli.main import execute
execute(["run", "x.yaml"])
"""
"""Ends with the first thing that is written on standard error."""


@pytest.mark.full
def test_the_first_line_of_a_run_comes_before_heavy_imports(python: Callable[[str], Any], spec: Path) -> None:
    said, modules = python(WATCHED).out.split(" | ")
    assert said.endswith(" s: reading x.yaml")
    assert modules.strip() == "[]"


@pytest.mark.full
def test_the_help_of_every_command_has_its_example_and_all_its_words(alray: Callable[..., Any]) -> None:
    """Typer reads a text as Markdown, and leaves out what looks like a tag of HTML."""
    program = typer.main.get_command(app)
    assert isinstance(program, TyperGroup)
    said = alray("-h").out
    assert all(title in said for title in GROUPS)
    for example in (example for group in GROUPS.values() for example in group.values()):
        first, name, *words = example.split()
        assert first == "alray" and name in said
        command = program.commands[name]
        command.make_context(name, words)  # refuses an option that does not exist
        shown = alray(name, "-h")
        assert shown == alray(name, "--help")
        texts = (example, command.help or "", *(getattr(each, "help", None) or "" for each in command.params))
        assert {word for text in texts for word in text.replace("`", "").split()} <= set(shown.out.split())


@pytest.mark.full
def test_bash_completes_commands_and_options(command: list[str], tmp_path: Path) -> None:
    """In a real bash, with the script that `--install-completion` writes."""
    (tmp_path / "alray").write_text(f"#!/bin/sh\nexec {command[0]} -X importtime {command[1]} '{command[2]}' \"$@\"\n")
    (tmp_path / "alray").chmod(0o755)
    script = """
        alray --install-completion 2>/dev/null
        source ~/.bashrc
        complete -p alray
        COMP_WORDS=(alray val); COMP_CWORD=1; _alray_completion alray; echo "${COMPREPLY[@]}"
        COMP_WORDS=(alray run --in); COMP_CWORD=2; _alray_completion alray; echo "${COMPREPLY[@]}"
    """
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert "-F _alray_completion alray" in lines[-3] and "-o default" in lines[-3]  # the default completes files
    assert lines[-2:] == ["validate", "--inline"]
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert imported & {"typer", "torch", "ray", "numpy"} == {"typer"}


@pytest.mark.few
@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_loads_nothing_that_takes_long(command: list[str], argument: str) -> None:
    done = subprocess.run(
        [command[0], "-X", "importtime", *command[1:], argument], capture_output=True, text=True, check=True
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "alray.cli.main" in imported
    assert imported & {"typer", "pydantic", "yaml", "numpy", "jinja2", "torch", "ray"} <= {"typer"}


def test_version(alray: Callable[..., Any]) -> None:
    assert alray("--version") == (0, f"alray {__version__}\n", "")


@pytest.mark.parametrize("arguments", [["fly"], ["run", "x.yaml", "--fly"], ["run"], ["predict", "x", "--depth", "a"]])
def test_a_wrong_command_line_exits_2(alray: Callable[..., Any], arguments: list[str]) -> None:
    said = alray(*arguments)
    assert (said.code, said.out) == (2, "")
    assert said.err
    as_json = alray(*arguments, "--json")
    assert (as_json.code, as_json.err, as_json.json["ok"]) == (2, "", False)
    assert set(as_json.json["errors"][0]) == {"file", "line", "key", "message", "hint"}


@pytest.mark.few
@pytest.mark.parametrize(
    ("arguments", "override"),
    [
        ("run x.yaml --epochs 3", "run.epochs=..."),
        ("run x.yaml --batch-size=8 --inline", "data.batch_size=..."),
        ("validate x.yaml --learning-rate 1e-2", "optimizer.lr=..."),
    ],
)
def test_an_option_that_is_a_key_of_the_spec(alray: Callable[..., Any], arguments: str, override: str) -> None:
    said = alray(*arguments.split())
    assert said.code == 2
    assert f"; did you mean `{override}`? That is how a value of the spec is given\n" in said.errors
    assert "did you mean" not in alray("doctor", "--epochs", "3").errors


@pytest.mark.full
def test_the_console_script_exits_with_the_code(spec: Path, command: list[str]) -> None:
    done = subprocess.run([*command, "validate", "nothing.yaml"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: nothing.yaml: ")


def test_an_interrupt_in_code_that_python_makes_changes_no_exit_code(tmp_path: Path) -> None:
    """Such as the methods of a dataclass, when it is imported."""
    (tmp_path / "interrupted.py").write_text(
        "from contextlib import suppress\n"
        "from alray.cli.main import _leave\n"
        "with suppress(KeyboardInterrupt):\n"
        "    exec('raise KeyboardInterrupt')\n"
        "_leave(130)\n"
    )
    done = subprocess.run([sys.executable, "-m", "interrupted"], cwd=tmp_path, check=False)
    assert done.returncode == 130


def test_a_path_is_shown_where_the_current_folder_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert shown(tmp_path / "run") == str(tmp_path / "run")
