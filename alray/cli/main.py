"""The program `alray`: its commands, their help and their exit codes."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from alray import __version__
from alray.api.console.closed_output import lasting, take_closed_descriptors, unwritten
from alray.api.console.interrupts import Interrupts
from alray.cli.doctor import doctor
from alray.cli.methods import methods
from alray.cli.plan import plan, probe
from alray.cli.report import compare, list_runs, report
from alray.cli.run import prove, reproduce, resume, run
from alray.cli.spec import init, schema, validate
from alray.cli.study import study
from alray.cli.submit import fetch, submit
from alray.cli.terminal import INTERRUPTED, Terminal
from alray.cli.trained import evaluate, export, predict
from alray.core.errors import AlrayError, Problem
from alray.core.system_errors import require_current_folder

_OBJECTS = 100_000
"""New objects between two searches for garbage."""
_PATIENCE_S = 2.0
"""Seconds that a busy thread, or what the user's code does at the end, may take to end by itself."""

GROUPS: dict[str, dict[Callable[..., None], str]] = {
    "Write a spec and look ahead": {
        init: "alray init mine.yaml",
        validate: "alray validate mine.yaml --deep",
        plan: "alray plan mine.yaml --compare",
        probe: "alray probe mine.yaml --output costs.json",
        prove: "alray prove torchvision:resnet18",
        methods: "alray methods",
        schema: "alray schema",
        doctor: "alray doctor",
    },
    "Train": {
        run: "alray run mine.yaml optimizer.lr=3e-4 --output runs/mine",
        resume: "alray resume runs/mine run.epochs=20",
        reproduce: "alray reproduce runs/mine",
        study: "alray study rates.yaml --output studies/rates",
    },
    "Look at runs and studies": {
        list_runs: "alray list runs",
        report: "alray report runs/mine",
        compare: "alray compare runs/mine runs/other",
    },
    "Use a trained network": {
        evaluate: "alray evaluate runs/mine",
        predict: "alray predict runs/mine picture.png",
        export: "alray export runs/mine --format onnx",
    },
    "Work on a cluster": {
        submit: "alray submit mine.yaml --address http://head:8265",
        fetch: "alray fetch ID --address http://head:8265",
    },
}
"""The commands in groups, each with an example that begins with its name."""

app = typer.Typer(
    name="alray",
    help=(
        "Train a network declared in YAML, or your own PyTorch module, on one device or many, by backpropagation or by "
        "local losses: time and memory told before the run, the same bits wherever the network is cut and the run is "
        "resumed, and proved."
    ),
    epilog="Exit codes: 0 success, 1 the run failed, 2 the request was wrong, 130 interrupted.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",  # in which the lines of a paragraph are one text
    pretty_exceptions_enable=False,
)
for _title, _group in GROUPS.items():
    for _command, _example in _group.items():
        app.command(_example.split()[1], rich_help_panel=_title, epilog=f"Example: {_example}")(_command)


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
        if not message:  # no command was named, and Typer has shown the help
            return error.exit_code
        hint = "`alray --help` lists the commands, `alray COMMAND --help` the options of a command"
        if message.startswith("No such option") and (key := _key_meant(error)) is not None:
            hint = f"did you mean `{key}=...`? That is how a value of the spec is given"
        streams.refuse([Problem(f"{message[:1].lower()}{message[1:].rstrip('.')}", hint)])
        return error.exit_code
    except AlrayError as error:  # of the current folder, or of a URL: a command takes it apart before its streams open
        streams.refuse(error.problems)
        return error.exit_code
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return code if isinstance(code, int) else 0


def _key_meant(error: typer.TyperException) -> str | None:
    """The key that was meant by an option that a command does not have: `run.epochs` for `--epochs`.

    None if the command takes no overrides, or if no key of a spec has that name.
    """
    from alray.config.loading.messages import key_elsewhere
    from alray.config.sections.spec import Spec
    from alray.config.study.section import Study

    option, context = str(getattr(error, "option_name", "")), getattr(error, "ctx", None)
    if context is None or not any("key=value" in str(each.metavar) for each in context.command.params):
        return None
    name = option.lstrip("-").replace("-", "_")
    return name if "." in name else key_elsewhere(name, Study if context.info_name == "study" else Spec)


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
