"""The commands that pages show: what they are, and whether alray's command line takes them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import typer

from alray.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "alray/README.md",
    "cluster/README.md",
    *sorted(
        file.relative_to(ROOT).as_posix() for file in (ROOT / "docs").rglob("*.md") if file.parent.name != "tables"
    ),
)
"""Without the tables of studies, which their reports contain."""
PROGRAMS = (
    "alray",
    "aws",
    "cluster/local.sh",
    "eval",
    "export",
    "kubectl",
    "make",
    "pip",
    "python",
    "ray",
    "sbatch",
    "source",
    "tensorboard",
)
"""The first words of commands."""
_ASSIGNMENT = re.compile(r"[A-Z_]+=")
_LANGUAGES = ("", "sh", "bash", "console")
"""Of fenced blocks that may hold commands."""


@dataclass(frozen=True)
class Command:
    """One line of a block. line: its number in the file of the page, from 1."""

    page: str
    line: int
    text: str

    @property
    def words(self) -> list[str]:
        """Without assignments of environment variables, and without the comment."""
        words = shlex.split(self.text, comments=True)
        while words and _ASSIGNMENT.match(words[0]):
            words.pop(0)
        return words

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {shlex.join(self.words)}"


def blocks(text: str) -> Iterator[tuple[int, str, str]]:
    """Line number, language and content of each line in a fenced or an indented block of a page."""
    fence, before = None, ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fence = None if fence is not None else line[3:].strip()
        elif fence is not None:
            yield number, fence, line
        elif line.startswith("    ") and (not before.strip() or before.startswith("    ")):
            yield number, "", line
        before = line


def commands(page: str) -> list[Command]:
    """The commands of a page, in order.

    Raises AssertionError for another line in a block of commands: a program that `PROGRAMS` lacks.
    """
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = [Command(page, number, line.strip()) for number, language, line in blocks(text) if language in _LANGUAGES]
    shown = [line for line in lines if _first(line.text) in PROGRAMS]
    numbers = {command.line for command in shown}
    strangers = [
        line for line in lines if line.line not in numbers and line.text and numbers & {line.line - 1, line.line + 1}
    ]
    assert strangers == []
    return shown


def _first(line: str) -> str:
    words = [word for word in line.split() if not _ASSIGNMENT.match(word)]
    return words[0] if words else ""


def parse(words: list[str]) -> None:
    """Give a command to alray's command line, which reads options and arguments and runs nothing.

    Raises typer.TyperException for an unknown command or option.
    """
    command, name, rest = typer.main.get_command(app), "alray", list(words)
    while hasattr(command, "commands"):
        name, rest = rest[0], rest[1:]
        command = command.commands[name]
    command.make_context(name, rest)


def mentioned(page: str) -> set[str]:
    """The commands of alray and make that the prose of a page names in code quotes."""
    text = (ROOT / page).read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return {" ".join(found.split()) for found in re.findall(r"`((?:alray|make)\s[^`]+)`", prose)}


def write_files(page: str, folder: Path) -> list[str]:
    """Write the files that a page shows, each as its name in code quotes, a colon and a block. Returns their names."""
    text = (ROOT / page).read_text(encoding="utf-8")
    shown = re.findall(r"^`([\w/]+\.(?:py|yaml))`:\n\n```\w+\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    for name, content in shown:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return [name for name, _ in shown]
