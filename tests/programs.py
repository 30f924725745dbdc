"""Programs for tests: as text, for golden files too (one line per stage; what follows a `#` is left out), and what a
stage computes."""

from __future__ import annotations

from collections.abc import Iterable

from alray.planning.schedules.actions import Action, parse
from alray.planning.schedules.schedule import Computation, Schedule, run_of


def parse_program(text: str) -> tuple[tuple[Action, ...], ...]:
    """The action lists of all stages."""
    lines = [line.partition("#")[0].split() for line in text.splitlines()]
    return tuple(tuple(map(parse, words)) for words in lines if words)


def print_program(program: Iterable[Iterable[Action]]) -> str:
    """The text that `parse_program` reads."""
    return "".join(" ".join(map(str, actions)) + "\n" for actions in program)


def computations(
    schedule: Schedule, stage: int, stages: int, micro_batches: int = 1, virtual_stages: int = 1
) -> list[Computation]:
    """The forwards and backwards of one mini-batch on one stage, in order."""
    return [
        (action.kind, action.stage, action.number)
        for action in run_of(schedule, stage, stages, 1, micro_batches, virtual_stages)
        if action.kind in ("F", "B", "I", "G", "C")
    ]
