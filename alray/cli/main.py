"""The program `alray`: its commands, their help and their exit codes."""

from __future__ import annotations

import atexit
import gc
import inspect
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from alray import __version__
from alray.api.console.closed_output import lasting, take_closed_descriptors, unwritten
from alray.api.console.interrupts import Interrupts
from alray.api.console.layout import Page, unbroken
from alray.cli.doctor import doctor
from alray.cli.jobs import fetch, logs, status, stop
from alray.cli.methods import methods
from alray.cli.plan import plan, probe
from alray.cli.report import compare, list_runs, report
from alray.cli.run import prove, reproduce, resume, run
from alray.cli.spec import init, schema, validate
from alray.cli.study import study
from alray.cli.submit import submit
from alray.cli.terminal import INTERRUPTED, Terminal
from alray.cli.trained import evaluate, export, predict
from alray.core.errors import AlrayError, Problem
from alray.core.system_errors import require_current_folder

_OBJECTS = 100_000
"""New objects between two searches for garbage."""
_PATIENCE_S = 2.0
"""Seconds that a busy thread, or what the user's code does at the end, may take to end by itself."""
_WIDEST = 80
_WHOLE = 1000
"""Characters up to which Typer leaves the first sentence of a command's help alone."""


GROUPS = {
    "Write a spec and look ahead": {
        "init": "alray init mine.yaml",
        "validate": "alray validate mine.yaml --deep",
        "plan": "alray plan mine.yaml --compare",
        "probe": "alray probe mine.yaml --output costs.json",
        "prove": "alray prove torchvision:resnet18",
        "methods": "alray methods",
        "schema": "alray schema",
        "doctor": "alray doctor",
    },
    "Train": {
        "run": "alray run mine.yaml optimizer.lr=3e-4 --output runs/mine",
        "resume": "alray resume runs/mine run.epochs=20",
        "reproduce": "alray reproduce runs/mine",
        "study": "alray study rates.yaml --output studies/rates",
    },
    "Look at runs and studies": {
        "list": "alray list runs",
        "report": "alray report runs/mine",
        "compare": "alray compare runs/mine runs/other",
    },
    "Use a trained network": {
        "evaluate": "alray evaluate runs/mine",
        "predict": "alray predict runs/mine picture.png",
        "export": "alray export runs/mine --format onnx",
    },
    "Work on a cluster": {
        "submit": "alray submit mine.yaml --address http://head:8265",
        "jobs": "alray jobs logs ID --address http://head:8265",
    },
}
"""The commands of the program in groups, each with an example."""


class Command(TyperCommand):
    """A command whose help names an argument without the Python type behind it, such as `list[str]`."""

    def get_help(self, ctx: Any) -> str:
        return help_text(self, ctx, {})


class CommandGroup(TyperGroup):
    """The program, or a command that has commands."""

    def get_help(self, ctx: Any) -> str:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        helps = {name: command.get_short_help_str(_WHOLE) for name, command in commands if command is not None}
        if ctx.parent is not None:
            return help_text(self, ctx, {"Commands": list(helps.items())})
        groups = {
            title: [
                row for name, example in group.items() for row in ((name, helps[name]), ("", unbroken(f"$ {example}")))
            ]
            for title, group in GROUPS.items()
        }
        return help_text(self, ctx, groups)


def help_text(command: TyperCommand | TyperGroup, ctx: Any, commands: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    """Usage, what the command does, its arguments, options and commands. Help is text to read: it always wraps.

    Args:
        commands: by the title of their group, each with what it does. A row without a name belongs to the one above.
    """
    page = Page.of(sys.stdout)
    return "\n\n".join(_parts(command, ctx, commands, replace(page, width=min(page.width, _WIDEST), wraps=True)))


def _parts(
    command: TyperCommand | TyperGroup, ctx: Any, commands: Mapping[str, Sequence[tuple[str, str]]], page: Page
) -> Iterator[str]:
    usage = f"Usage: {ctx.command_path} "
    yield page.sentence(" ".join(command.collect_usage_pieces(ctx)), first=usage, hang=" " * len(usage))
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield page.sentence(" ".join(paragraph.split("\n")), first="  ", hang="  ")
    records = [(param, param.get_help_record(ctx)) for param in command.get_params(ctx)]
    arguments = [(param.metavar or "", row[1]) for param, row in records if row and isinstance(param, TyperArgument)]
    options = [row for param, row in records if row and not isinstance(param, TyperArgument)]
    for title, rows in {"Arguments": arguments, "Options": options, **commands}.items():
        if rows:
            yield f"{page.heading(f'{title}:')}\n{page.fields(rows, indent='  ')}"
    for group in GROUPS.values():
        if ctx.info_name in group:
            example = page.sentence(unbroken(f"$ {group[ctx.info_name]}"), first="  ", hang="  ")
            yield f"{page.heading('Example:')}\n{example}"
    if command.epilog:
        yield page.sentence(command.epilog, first="  ", hang="  ")


app = typer.Typer(
    name="alray",
    cls=CommandGroup,
    help=(
        "Train a network declared in YAML, or your own PyTorch module, on one device or many, by backpropagation or by "
        "local losses: time and memory told before the run, the same bits wherever the network is cut and the run is "
        "resumed, and proved."
    ),
    epilog="Exit codes: 0 success, 1 the run failed, 2 the request was wrong, 130 interrupted.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    # Plain help: importing rich takes longer than the whole command.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for _command in (
    run,
    plan,
    probe,
    prove,
    study,
    validate,
    schema,
    methods,
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
    app.command(cls=Command)(_command)
app.command("list", cls=Command)(list_runs)
_jobs = typer.Typer(
    name="jobs",
    cls=CommandGroup,
    help="Show, stop and fetch the jobs of `alray submit`.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
for _of_jobs in (status, logs, stop, fetch):
    _jobs.command(cls=Command)(_of_jobs)
app.add_typer(_jobs)
_RENAMED = {"fit": "alray plan SPEC --devices 4x24GB", "crossover": "alray plan SPEC --map"}
"""What the commands of version 0.4 are now."""


def _print_version(requested: bool) -> None:
    if requested:
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
    take_closed_descriptors()
    sys.stdout = lasting(sys.stdout)
    sys.stderr = lasting(sys.stderr)
    _leave(execute(sys.argv[1:]))


def execute(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    command = typer.main.get_command(app)
    streams = Terminal(as_json="--json" in arguments)
    try:
        require_current_folder()
        code = command.main(args=list(arguments), prog_name="alray", standalone_mode=False)
    except typer.TyperException as error:
        message = error.format_message()
        if message.startswith("Usage:") and not streams.as_json:  # no command was named, and the message is the help
            streams.err.write(f"{message}\n")
            return error.exit_code
        if arguments[:1] and arguments[0] in _RENAMED:
            streams.refuse([Problem(f"`alray {arguments[0]}` is `alray plan` now", f"write {_RENAMED[arguments[0]]}")])
            return error.exit_code
        hint = "`alray --help` lists the commands, `alray COMMAND --help` the options of a command"
        if message.startswith("No such option") and (override := _override_meant(error, arguments)) is not None:
            hint = f"did you mean `{override}`? That is how a value of the spec is given"
        streams.refuse([Problem(f"{message[:1].lower()}{message[1:].rstrip('.')}", hint)])
        return error.exit_code
    except AlrayError as error:  # of the current folder, or of a URL: a command takes it apart before its streams open
        streams.refuse(error.problems)
        return error.exit_code
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return code if isinstance(code, int) else 0


def _override_meant(error: typer.TyperException, arguments: Sequence[str]) -> str | None:
    """The override that was meant by an option that a command does not have: `run.epochs=3` for `--epochs 3`.

    None if the command takes no overrides, or if no key of a spec has that name.
    """
    from alray.config.loading.messages import key_elsewhere
    from alray.config.sections.spec import Spec
    from alray.config.study.section import Study

    option, context = str(getattr(error, "option_name", "")), getattr(error, "ctx", None)
    if context is None or not any("key=value" in str(each.metavar) for each in context.command.params):
        return None
    name = option.lstrip("-").replace("-", "_")
    key = name if "." in name else key_elsewhere(name, Study if context.info_name == "study" else Spec)
    if key is None:
        return None
    for number, given in enumerate(arguments):
        if given == option:
            value = next((each for each in arguments[number + 1 :][:1] if not each.startswith("-")), "...")
            return f"{key}={value}"
        if given.startswith(f"{option}="):
            return f"{key}={given.partition('=')[2]}"
    return f"{key}=..."


def _leave(code: int) -> None:
    """End the process with this exit code.

    Python waits for every thread before it ends. A thread in a long computation (a run in this process that was asked
    to stop at once) cannot be ended from outside, so after a short time the process ends without it. What the user's
    code has left for the end (`atexit`) may hang too: after an interrupt the next Ctrl-C ends it, and after a request
    to stop at once a short time does.
    """
    sys.stdout.flush()
    if unwritten:
        sys.stderr.write(f"error: the output could not be written: {unwritten[0].strerror}\n")
        code = code or 1
    sys.stderr.flush()
    if code == INTERRUPTED:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(code))
    if Interrupts.asked_at_once:
        ending = threading.Timer(_PATIENCE_S, os._exit, [code])
        ending.daemon = True
        ending.start()
    until_s = time.monotonic() + _PATIENCE_S
    others = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
    for thread in others:
        if not thread.daemon:
            thread.join(max(0.0, until_s - time.monotonic()))
            if thread.is_alive():
                os._exit(code)
    start = sys.modules.get("alray.runtime.local_ray.start")
    if start is not None and start.was_lost():
        # Threads of a Ray that was lost may still run, and crash while Python ends: the exit code would be -11.
        atexit._run_exitfuncs()
        os._exit(code)
    # Python remembers an interrupt that came within `exec`, which dataclasses use. With `python -m alray` it would then
    # end by SIGINT, not with this exit code. Another `exec` makes it forget.
    exec("")
    sys.exit(code)
