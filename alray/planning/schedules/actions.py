"""Actions: the steps of a stage's work, as text that can be printed and parsed.

    2F0      stage 2, forward, mini-batch 0
    1S0      stage 1 sends the samples of mini-batch 0 up, to stage 2
    1S0.1    stage 1 sends the labels of mini-batch 0 up: message 1 of two
    1S0v     stage 1 sends the answer to mini-batch 0 down, to stage 0
    2W0.1    stage 2 waits at the second barrier of mini-batch 0
    2F0.3    stage 2, forward, mini-batch 0, micro-batch 3

The number after the dot is `number`; 0 is not printed. A program holds the list of every stage.

With virtual stages an action names the virtual stage, as torch's `pipeline_order` does. There is still one list per
stage. `placement.py` says which stage holds which virtual stage: where they lie in turns, stage s of S holds s, s + S,
s + 2S and so on, so `5F0` belongs to the list of stage 1 of 4. Without virtual stages the two numbers are the same.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, cast

from alray.core.errors import PlanError

ActionKind = Literal["F", "L", "B", "U", "S", "R", "E", "D", "W", "I", "G", "C"]

KINDS: dict[ActionKind, str] = {
    "F": "forward: the encoders",
    "L": "labels: the label chain and the local losses",
    "B": "backward: the gradients of the losses; with backpropagation the loss belongs to F",
    "U": "update: optimizer steps",
    "S": "send",
    "R": "receive",
    "E": "inference up: the encoders in evaluation mode",
    "D": "inference down: the label decoders of every depth",
    "W": "wait: a barrier that all stages reach before any continues",
    "I": "first half of a split backward: the gradient of the input, which the stage below waits for",
    "G": "second half of a split backward: the gradients of the weights, which no stage waits for",
    "C": "compute again: the forward of a micro-batch of which only the input was kept, before its backward",
}
COMPUTE: tuple[ActionKind, ...] = ("F", "L", "B", "U", "E", "D", "I", "G", "C")
"""Kinds that keep the device busy."""
MESSAGES: tuple[ActionKind, ...] = ("S", "R")
"""Kinds that use an edge."""
LABELS = 1
"""Number of the message of a mini-batch that holds the labels, with local losses; message 0 holds the samples."""

_NUMBER = r"(0|[1-9][0-9]*)"
_ACTION = re.compile(rf"{_NUMBER}([{''.join(KINDS)}]){_NUMBER}(?:\.([1-9][0-9]*))?(v?)")


class Action(NamedTuple):
    """One action of one (virtual) stage; stages, batches and numbers count from 0.

    `number` tells actions of one kind within a mini-batch apart: the micro-batch in schedules that have micro-batches,
    else the message (samples, labels) or the barrier. `down` is true for messages towards stage 0.
    """

    stage: int
    kind: ActionKind
    batch: int
    number: int = 0
    down: bool = False

    @property
    def peer(self) -> int:
        """The (virtual) stage at the other end of a send or receive."""
        if self.kind not in MESSAGES:
            raise ValueError(f"{self} has no peer: it is neither a send nor a receive")
        return self.stage + (1 if (self.kind == "S") != self.down else -1)

    def __str__(self) -> str:
        number = f".{self.number}" if self.number else ""
        return f"{self.stage}{self.kind}{self.batch}{number}{'v' if self.down else ''}"


def parse(text: str) -> Action:
    """The action that is printed as `text`. Raises PlanError for any other text."""
    match = _ACTION.fullmatch(text)
    if match is None or (match[5] and match[2] not in MESSAGES):
        raise PlanError(
            f"`{text}` is not an action",
            hint=f"write stage, kind and batch, as in `2F0`; the kinds are {' '.join(KINDS)}, "
            "and only S and R go down (`1S0v`)",
        )
    stage, kind, batch, number, down = match.groups()
    return Action(int(stage), cast(ActionKind, kind), int(batch), int(number or 0), bool(down))
