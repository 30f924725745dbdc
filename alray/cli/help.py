"""The help of the program and of each command, laid out as all that alray prints."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup

from alray.cli.layout import Page

_WIDEST = 80
_WHOLE = 1000
"""Characters up to which Typer leaves the first sentence of a command's help alone."""


class Command(TyperCommand):
    """A command whose help names an argument without the Python type behind it, such as `list[str]`."""

    def get_help(self, ctx: Any) -> str:
        return help_text(self, ctx, {})


class Group(TyperGroup):
    """The program, or a command that has commands."""

    def get_help(self, ctx: Any) -> str:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        return help_text(
            self, ctx, {name: command.get_short_help_str(_WHOLE) for name, command in commands if command is not None}
        )


def help_text(command: TyperCommand | TyperGroup, ctx: Any, commands: dict[str, str]) -> str:
    """Usage, what the command does, its arguments, options and commands. Help is text to read: it always wraps."""
    page = Page.of(sys.stdout)
    return "\n\n".join(_parts(command, ctx, commands, replace(page, width=min(page.width, _WIDEST), wraps=True)))


def _parts(command: TyperCommand | TyperGroup, ctx: Any, commands: dict[str, str], page: Page) -> Iterator[str]:
    usage = f"Usage: {ctx.command_path} "
    yield page.sentence(" ".join(command.collect_usage_pieces(ctx)), first=usage, hang=" " * len(usage))
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield page.sentence(" ".join(paragraph.split("\n")), first="  ", hang="  ")
    told = [(param, param.get_help_record(ctx)) for param in command.get_params(ctx)]
    arguments = [(param.metavar or "", said[1]) for param, said in told if said and isinstance(param, TyperArgument)]
    options = [said for param, said in told if said and not isinstance(param, TyperArgument)]
    for title, rows in {"Arguments:": arguments, "Options:": options, "Commands:": list(commands.items())}.items():
        if rows:
            yield f"{page.heading(title)}\n{page.fields(rows, indent='  ')}"
    if command.epilog:
        yield page.sentence(command.epilog, first="  ", hang="  ")
