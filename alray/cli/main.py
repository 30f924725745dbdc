"""The program `alray`: its commands and their exit codes."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand

from alray import __version__
from alray.cli.doctor import doctor
from alray.cli.fit import fit
from alray.cli.jobs import fetch, logs, status, stop
from alray.cli.list import list_runs
from alray.cli.plan import plan
from alray.cli.report import compare, report
from alray.cli.reproduce import reproduce
from alray.cli.run import resume, run
from alray.cli.spec import init, schema, validate
from alray.cli.study import study
from alray.cli.submit import submit
from alray.cli.terminal import Terminal
from alray.cli.trained import evaluate, export, predict
from alray.cli.watch import watch
from alray.errors import AlrayError, Problem

_OBJECTS = 100_000
"""New objects between two searches for garbage."""
_PATIENCE_S = 2.0
"""Seconds that a busy thread may take to end by itself."""


class _Command(TyperCommand):
    """A command whose help names an argument without the Python type behind it, such as `list[str]`."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        records = [(param, param.get_help_record(ctx)) for param in self.get_params(ctx)]
        arguments = [(param.metavar, said[1]) for param, said in records if said and isinstance(param, TyperArgument)]
        options = [said for param, said in records if said and not isinstance(param, TyperArgument)]
        for title, shown in {"Arguments": arguments, "Options": options}.items():
            if shown:
                with formatter.section(title):
                    formatter.write_dl(shown)


app = typer.Typer(
    name="alray",
    help="Train neural networks by Associated Learning. A YAML spec describes the network, and Ray actors train it.",
    epilog="Exit codes: 0 success, 1 the run failed, 2 the request was wrong, 130 interrupted.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    # Plain help: importing rich takes longer than the whole command.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for _command in (
    run,
    watch,
    plan,
    fit,
    study,
    validate,
    schema,
    init,
    resume,
    reproduce,
    evaluate,
    predict,
    export,
    report,
    compare,
    doctor,
    submit,
):
    app.command(cls=_Command)(_command)
app.command("list", cls=_Command)(list_runs)
_jobs = typer.Typer(
    name="jobs",
    help="Show, stop and fetch the jobs of `alray submit`.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
for _of_jobs in (status, logs, stop, fetch):
    _jobs.command(cls=_Command)(_of_jobs)
app.add_typer(_jobs)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"alray {__version__}")
        raise typer.Exit


@app.callback()
def _alray(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """The options before the command."""


def main() -> None:
    """The console script."""
    # Imports make hundreds of thousands of objects that stay. To look through them for garbage takes a quarter of their
    # time, so that is done seldom.
    gc.set_threshold(_OBJECTS)
    _leave(execute(sys.argv[1:]))


def execute(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    command = typer.main.get_command(app)
    # Typer explains a wrong command line in prose. With --json the answer must be an object.
    as_json = "--json" in arguments
    try:
        code = command.main(args=list(arguments), prog_name="alray", standalone_mode=not as_json)
    except typer.TyperException as error:
        mend = "`alray --help` lists the commands, `alray COMMAND --help` the options of a command"
        Terminal(as_json=True).refuse([Problem(error.format_message(), mend)])
        return error.exit_code
    except AlrayError as error:  # of a URL: a command takes it apart before it opens its streams
        Terminal(as_json=as_json).refuse(error.problems)
        return error.exit_code
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return code if isinstance(code, int) else 0


def _leave(code: int) -> None:
    """End the process with this exit code.

    Python waits for every thread before it ends. A thread in a long computation (a run in this process that was asked
    to stop at once) cannot be ended from outside, so after a short time the process ends without it.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    until_s = time.monotonic() + _PATIENCE_S
    others = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
    for thread in others:
        if not thread.daemon:
            thread.join(max(0.0, until_s - time.monotonic()))
            if thread.is_alive():
                os._exit(code)
    sys.exit(code)
