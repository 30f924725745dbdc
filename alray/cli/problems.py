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

from alray.api.console.layout import BLUE, RED, Page, cleaned, columns
from alray.core.counting import counted
from alray.core.errors import Problem

_LONGEST_LINE = 200
"""Characters of a line that is shown."""


def problems_text(problems: Sequence[Problem], page: Page) -> str:
    """A block for each problem, and how many there are if there are several."""
    blocks = [problem_text(problem, page) for problem in problems]
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
    parts = [page.sentence(cause)]
    gutter = " " * len(str(problem.line or ""))
    if problem.text and len(problem.text) <= _LONGEST_LINE:
        parts += _marked(problem, problem.text.rstrip(), page)
    if problem.hint:
        parts.append(f"{gutter} {page.styled('=', BLUE)} help: {cleaned(problem.hint)}")
    if problem.traceback is not None:
        parts += [f"    {cleaned(line)}".rstrip() for line in problem.traceback.rstrip().split("\n")]
    return "\n".join(parts)


def _marked(problem: Problem, text: str, page: Page) -> list[str]:
    """The line with its number, and below it a mark under what is wrong, if that is known."""
    number = str(problem.line or "")
    bar = page.styled("|", BLUE)
    gutter = f"{' ' * len(number)} {bar}"
    lines = [gutter, f"{page.styled(number, BLUE)} {bar} {cleaned(text)}".rstrip()]
    if problem.column is not None:
        start = problem.column - 1
        marked = cleaned(text[start : (problem.end_column or problem.column + 1) - 1])
        mark = page.styled("^" * max(columns(marked), 1), RED)
        lines.append(f"{gutter} {' ' * columns(cleaned(text[:start]))}{mark}")
    return lines
