"""The help of the program and of each command, laid out as all that alray prints."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup

from alray.api.console.layout import Page, unbroken

_WIDEST = 80
_WHOLE = 1000
"""Characters up to which Typer leaves the first sentence of a command's help alone."""


GROUPS = {
    "Write a spec and look ahead": {
        "init": "alray init mine.yaml",
        "validate": "alray validate mine.yaml --deep",
        "plan": "alray plan mine.yaml --compare",
        "fit": "alray fit mine.yaml --devices 4x24GB",
        "crossover": "alray crossover mine.yaml --probe",
        "probe": "alray probe mine.yaml --output costs.json",
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
