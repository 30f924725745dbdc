"""Actions: what one stage does next, as text that prints and parses.

    2F0      stage 2, forward, mini-batch 0
    2W0.1    stage 2, second barrier of mini-batch 0: the part, counted from 0, is left out where it is 0
    2F0.3    stage 2, forward, mini-batch 0, micro-batch 3; micro-batch 0 prints as `2F0`
    1S0v     stage 1 sends what answers mini-batch 0 down, to stage 0; without the `v` a message goes up

A program is the list of every stage: one line a stage, actions apart by blanks; blank lines and what follows
a `#` are left out.

In schedules with virtual stages an action names the virtual stage, as torch's `pipeline_order` does: stage s of
S holds virtual stages s, s + S, s + 2S and so on, so that `5F0` stands in the list of stage 1 of 4. Lists remain
one per stage. Elsewhere a stage and its virtual stage are the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast

from alray.errors import PlanError

ActionKind = Literal["F", "B", "U", "S", "R", "E", "D", "W", "I", "G", "L"]

KINDS: dict[ActionKind, str] = {
    "F": "forward: the encoders, and what they pass on",
    "L": "label chain and local losses",
    "B": "backward: losses, with the label chains of local ones, and their gradients",
    "U": "update: optimizer steps",
    "S": "send",
    "R": "receive",
    "E": "inference up: the encoders in evaluation mode",
    "D": "inference down: the label decoders of every depth",
    "W": "wait: a barrier that all stages reach before any goes on",
    "I": "first half of a split backward: the gradient of the input, which the stage below waits for",
    "G": "second half of a split backward: the gradients of the weights, for which nobody waits",
}
COMPUTE: tuple[ActionKind, ...] = ("F", "L", "B", "U", "E", "D", "I", "G")  # kinds that keep the device busy
MESSAGES: tuple[ActionKind, ...] = ("S", "R")  # kinds that use an edge

_NUMBER = r"(0|[1-9][0-9]*)"
_ACTION = re.compile(rf"{_NUMBER}([{''.join(KINDS)}]){_NUMBER}(?:\.([1-9][0-9]*))?(v?)")


@dataclass(frozen=True, slots=True)
class Action:
    """One action of one (virtual) stage; stages, batches and parts count from 0.

    `part` tells actions of one mini-batch apart that have the same kind: the barriers of a schedule with
    several, and, in a schedule with micro-batches, the micro-batch. `down` is set on messages towards stage 0.
    """

    stage: int
    kind: ActionKind
    batch: int
    part: int = 0
    down: bool = False

    @property
    def peer(self) -> int:
        """The (virtual) stage at the other end of a send or receive."""
        if self.kind not in MESSAGES:
            raise ValueError(f"{self} has no peer: it is neither a send nor a receive")
        return self.stage + (1 if (self.kind == "S") != self.down else -1)

    def __str__(self) -> str:
        part = f".{self.part}" if self.part else ""
        return f"{self.stage}{self.kind}{self.batch}{part}{'v' if self.down else ''}"


def parse(text: str) -> Action:
    """The action that prints as `text`; raises PlanError for anything else."""
    match = _ACTION.fullmatch(text)
    if match is None or (match[5] and match[2] not in MESSAGES):
        raise PlanError(
            f"`{text}` is not an action",
            mend=f"write stage, kind and batch, as in `2F0`; the kinds are {' '.join(KINDS)}, "
            "and only S and R go down (`1S0v`)",
        )
    stage, kind, batch, part, down = match.groups()
    return Action(int(stage), cast(ActionKind, kind), int(batch), int(part or 0), bool(down))


def parse_program(text: str, *, file: str | None = None) -> tuple[tuple[Action, ...], ...]:
    """The action lists of all stages from the text of a whole file; raises PlanError with the line."""
    lines = [(number, line.partition("#")[0].split()) for number, line in enumerate(text.splitlines(), start=1)]
    lines = [(number, words) for number, words in lines if words]
    program: list[tuple[Action, ...]] = []
    for number, words in lines:
        try:
            actions = tuple(parse(word) for word in words)
        except PlanError as error:
            problem = error.problems[0]
            raise PlanError(problem.message, mend=problem.mend, file=file, line=number) from None
        for action in actions:
            if action.stage % len(lines) != len(program):
                raise PlanError(
                    f"`{action}` stands in the list of stage {len(program)}",
                    mend="give each stage one line, stage 0 first",
                    file=file,
                    line=number,
                )
        program.append(actions)
    return tuple(program)


def print_program(program: Iterable[Iterable[Action]]) -> str:
    """The text `parse_program` reads: one line a stage."""
    return "".join(" ".join(map(str, actions)) + "\n" for actions in program)
