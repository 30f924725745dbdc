"""How errors are shown: the location and the cause, the line as it was written with a mark below it, and the hint.

    error: x.yaml:6:22: model.components[1].chanels: unknown key
      |
    6 |     - {block: vgg, chanels: [8], pool: true}
      |                    ^^^^^^^
      = help: did you mean `channels`?

The form is that of Rust's compiler and of Ruff. The first line holds all that is wrong, for `grep` and for editors.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from alray.api.console.layout import BLUE, RED, Page, cleaned, columns
from alray.core.counting import counted
from alray.core.errors import Problem

_LONGEST_LINE = 100
"""Columns of the line shown in a pipe or a file; a longer one is shortened."""
_CUT = "..."
_MOST_READ = 1_000_000
"""Bytes of a file that are read in search of a line."""


def problems_text(problems: Sequence[Problem], page: Page) -> str:
    """A block for each problem, those of one line in the order of its columns, and how many there are if there are
    several."""
    lines = groupby(problems, key=lambda problem: (problem.file, problem.line))
    blocks = [
        problem_text(problem, page)
        for (_, line), found in lines
        for problem in sorted(found, key=lambda problem: (problem.column or 0) if line is not None else 0)
    ]
    if len(blocks) > 1:
        blocks.append(counted(len(blocks), "error"))
    return "\n\n".join(blocks)


def problem_text(problem: Problem, page: Page) -> str:
    """The block of one problem, with the traceback of a user's code below it."""
    location = problem.file or ""
    if problem.line is not None:
        column = "" if problem.column is None else f":{problem.column}"
        location = f"{location}:{problem.line}{column}" if location else f"line {problem.line}{column}"
    cause = ": ".join(part for part in ("error", location, problem.key, problem.message) if part)
    parts = [page.sentence(cause, hang="       ")]
    text = problem.text if problem.text is not None else _line_of(problem)
    gutter = " " * len(str(problem.line or ""))
    if text:
        parts += _marked(problem, text, page)
    if problem.hint:
        shown = page.sentence(f"help: {problem.hint}", first=f"{gutter} = ", hang=f"{gutter}   ")
        parts.append(shown.replace("= help:", f"{page.styled('=', BLUE)} help:", 1))
    if problem.traceback is not None:
        parts += [f"    {cleaned(line)}".rstrip() for line in problem.traceback.rstrip().split("\n")]
    return "\n".join(parts)


def _marked(problem: Problem, text: str, page: Page) -> list[str]:
    """The line with its number, and below it a mark under what is wrong, if that is known."""
    number = str(problem.line or "")
    bar = page.styled("|", BLUE)
    gutter = f"{' ' * len(number)} {bar}"
    room = (page.width if page.wraps else max(page.width, _LONGEST_LINE)) - len(number) - 3
    start = (problem.column or 1) - 1
    end = (problem.end_column or start + 2) - 1
    shown, at, length = _excerpt(text, start, max(end, start + 1), max(room, 10))
    lines = [gutter, f"{page.styled(number, BLUE)} {bar} {shown}".rstrip()]
    if problem.column is not None:
        lines.append(f"{gutter} {' ' * at}{page.styled('^' * length, RED)}")
    return lines


def _excerpt(text: str, start: int, end: int, room: int) -> tuple[str, int, int]:
    """The text as it can be shown, and of its characters from start to end the column (from 0) and the number of
    columns. Of a text of more than `room` characters only those around the start are shown."""
    text = text.rstrip()
    first, last = 0, len(text)
    if last > room:
        room -= 2 * len(_CUT)
        first = max(0, min(start - room // 2, last - room))
        last = first + room
    left, right = _CUT if first else "", _CUT if last < len(text) else ""
    before, marked = cleaned(text[first:start]), cleaned(text[start : min(end, last)])
    return f"{left}{cleaned(text[first:last])}{right}", len(left) + columns(before), max(columns(marked), 1)


def _line_of(problem: Problem) -> str | None:
    """The line that a problem names, of a file that is text; None if it cannot be read."""
    if problem.file is None or problem.line is None:
        return None
    try:
        if not Path(problem.file).is_file():
            return None
        with Path(problem.file).open("rb") as file:
            lines = file.read(_MOST_READ).splitlines()
        text = lines[problem.line - 1].decode("utf-8") if 0 < problem.line <= len(lines) else None
    except (OSError, UnicodeDecodeError):
        return None
    return None if text is None or "\0" in text else text
