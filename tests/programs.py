"""Whole programs as text, for tests and golden files: one line per stage; what follows a `#` is left out."""

from __future__ import annotations

from collections.abc import Iterable

from alray.planning.schedules.actions import Action, parse


def parse_program(text: str) -> tuple[tuple[Action, ...], ...]:
    """The action lists of all stages."""
    lines = [line.partition("#")[0].split() for line in text.splitlines()]
    return tuple(tuple(map(parse, words)) for words in lines if words)


def print_program(program: Iterable[Iterable[Action]]) -> str:
    """The text that `parse_program` reads."""
    return "".join(" ".join(map(str, actions)) + "\n" for actions in program)
