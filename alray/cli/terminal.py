"""What a command says: its answer on standard output, everything else on standard error, and its exit code."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import typer

from alray.errors import AlrayError, Problem

INTERRUPTED = 130
_OUT, _ERR = 1, 2


class Terminal:
    """The two streams of one command, as they were when it began.

    A run in this process sends `sys.stdout` and `sys.stderr` to its logs for as long as it goes on; what the command
    itself has to say must not land there.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.out: TextIO = sys.stdout
        self.err: TextIO = sys.stderr

    def answer(self, value: Any) -> None:
        """Print the one JSON object of `--json`. Raises ValueError for numbers that JSON does not have."""
        self.out.write(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
        self.out.flush()

    def say(self, text: str) -> None:
        """Print a line for a human reader: on standard output, unless that belongs to `--json`."""
        self._write(self.err if self.as_json else self.out, text)

    def tell(self, text: str) -> None:
        """Print a line beside the answer, on standard error."""
        self._write(self.err, text)

    def refuse(self, problems: Sequence[Problem]) -> None:
        """Print problems: one line each, or the JSON object that says that the command was not done."""
        if self.as_json:
            self.answer({"ok": False, "errors": [problem.as_json() for problem in problems]})
            return
        for problem in problems:
            self.tell(str(problem))

    def _write(self, stream: Any, text: str) -> None:
        stream.write(text + "\n")
        stream.flush()


@contextmanager
def terminal(*, as_json: bool, spec: Path | None = None, overrides: Sequence[str] = ()) -> Iterator[Terminal]:
    """The streams of one command; what is wrong with its request is printed and becomes its exit code.

    spec, overrides: what the request is read from. A problem that names a key of the spec, found when the file had
    long been read, is printed with the place the key was written at.
    """
    streams = Terminal(as_json=as_json)
    with _alone(streams) if as_json else nullcontext():
        try:
            yield streams
        except AlrayError as error:
            streams.refuse([_placed(problem, spec, overrides) for problem in error.problems])
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt as interrupt:
            streams.refuse([Problem("interrupted")])
            raise typer.Exit(INTERRUPTED) from interrupt


@contextmanager
def _alone(streams: Terminal) -> Iterator[None]:
    """Keep standard output for the answer: what anything else prints there, by whichever way, goes to standard error.

    Ray, a library written in C and a user's code may all write to file descriptor 1; so may a process that they start.
    """
    before = sys.stdout
    before.flush()
    with os.fdopen(os.dup(_OUT), "w", encoding="utf-8") as kept:
        if _writes_to(before, _OUT):
            streams.out = kept
        os.dup2(_ERR, _OUT)
        try:
            with redirect_stdout(sys.stderr):
                yield
        finally:
            before.flush()
            os.dup2(kept.fileno(), _OUT)


def _writes_to(stream: TextIO, descriptor: int) -> bool:
    """Whether a stream is that file; one that a caller put in the place of `sys.stdout` may be no file at all."""
    try:
        return stream.fileno() == descriptor
    except io.UnsupportedOperation:
        return False


def shown(path: str | Path) -> str:
    """A path as short as it can be typed from the current folder."""
    path = Path(path)
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) and path != here else str(path)


def _placed(problem: Problem, spec: Path | None, overrides: Sequence[str]) -> Problem:
    if spec is None or problem.file is not None or problem.key is None or problem.key.startswith("-"):
        return problem
    from alray.cli.place import place_of

    file, line = place_of(problem.key, spec, overrides)
    return replace(problem, file=file, line=line)
