"""The common part of all commands: arguments and options, the two output streams, errors and exit codes."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer

from alray.api.console.closed_output import lasting
from alray.api.console.layout import Page, json_text, safe
from alray.cli.problems import problems_text
from alray.core.errors import AlrayError, Problem, RequestError
from alray.core.storage.location import Location, location_of
from alray.core.system_errors import system_faults

if TYPE_CHECKING:
    from alray.api.console.display import Display

INTERRUPTED = 130  # exit code
_OUT, _ERR = 1, 2  # file descriptors


class Terminal:
    """The two output streams of one command, as they were when it began.

    While a run is running in this process, `sys.stdout` and `sys.stderr` lead to its logs. The output of the command
    itself must not land there.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.began_s = time.monotonic()
        self.out: TextIO = sys.stdout
        self.err: TextIO = sys.stderr
        for stream in (self.out, self.err):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # file names may have bytes that are not UTF-8

    def answer(self, value: Any) -> None:
        """Print the one JSON object of `--json`."""
        self.out.write(json_text(value) + "\n")
        self.out.flush()

    @property
    def page(self) -> Page:
        """How what is for a person is laid out. It goes to standard output, or with `--json` to standard error."""
        return Page.of(self.err if self.as_json else self.out)

    def put(self, text: str) -> None:
        """Print a text for a person that is laid out already."""
        self._write(self.err if self.as_json else self.out, text)

    def say(self, text: str) -> None:
        """Print a sentence for a person."""
        self.put(self.page.sentence(text))

    def fields(self, rows: Sequence[tuple[str, str]]) -> None:
        """Print names with values for a person."""
        self.put(self.page.fields(rows))

    def tell(self, text: str) -> None:
        """Print a sentence on standard error."""
        self._write(self.err, Page.of(self.err).sentence(text))

    def refuse(self, problems: Sequence[Problem]) -> None:
        """Print problems on standard error, or with `--json` one object with `ok: false`."""
        if self.as_json:
            self.answer({"ok": False, "errors": [problem.as_json() for problem in problems]})
            return
        self.explain(problems)

    def explain(self, problems: Sequence[Problem]) -> None:
        """Print problems on standard error for a person."""
        self._write(self.err, problems_text(problems, Page.of(self.err)))

    def _write(self, stream: Any, text: str) -> None:
        stream.write(safe(text) + "\n")
        stream.flush()


@contextmanager
def terminal(*, as_json: bool) -> Iterator[Terminal]:
    """The streams of one command. An error in the block is printed, and its exit code becomes that of the command."""
    streams = Terminal(as_json=as_json)
    with _alone(streams) if as_json else nullcontext():
        try:
            with system_faults():
                yield streams
        except AlrayError as error:
            streams.refuse(error.problems)
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt as interrupt:
            if as_json:
                streams.refuse([Problem("interrupted")])
            else:
                streams.tell("interrupted")
            raise typer.Exit(INTERRUPTED) from interrupt


@contextmanager
def reading(streams: Terminal, spec: Path) -> Iterator[Display]:
    """The display of a command that runs nothing of a spec."""
    from alray.api.console.display import terminal_display
    from alray.api.console.interrupts import Interrupts

    with terminal_display(streams.err, Interrupts(), streams.began_s) as display:
        display.doing(f"reading {spec}")
        yield display


@contextmanager
def writing(file: Location) -> Iterator[None]:
    """Raise a RequestError that names the file if the block cannot write it."""
    try:
        yield
    except OSError as error:
        raise RequestError(
            f"cannot be written: {error.strerror}", file=str(file), hint="name a file in a folder that you can write to"
        ) from error


def shown(path: str | Location) -> str:
    """A path relative to the current folder if it lies in it, otherwise unchanged."""
    path = location_of(path)
    if not isinstance(path, Path):
        return str(path)
    try:
        here = Path.cwd()
    except FileNotFoundError:  # the current folder was deleted: that of a job, once its run has let go of the cluster
        return str(path)
    return str(path.relative_to(here)) if path.is_relative_to(here) and path != here else str(path)


@contextmanager
def _alone(streams: Terminal) -> Iterator[None]:
    """Reserve standard output for the answer: whatever else is printed there goes to standard error.

    Ray, a library in C, the user's code and the processes they start may all write to file descriptor 1.
    """
    before = sys.stdout
    before.flush()
    with os.fdopen(os.dup(_OUT), "w", encoding="utf-8", errors="backslashreplace") as saved_out:
        if _writes_to(before, _OUT):
            streams.out = lasting(saved_out)
        os.dup2(_ERR, _OUT)
        try:
            with redirect_stdout(sys.stderr):
                yield
        finally:
            before.flush()
            os.dup2(saved_out.fileno(), _OUT)


def _writes_to(stream: TextIO, descriptor: int) -> bool:
    """Whether a stream writes to this file descriptor. A caller may have replaced `sys.stdout` by an object without."""
    try:
        return stream.fileno() == descriptor
    except io.UnsupportedOperation:
        return False
