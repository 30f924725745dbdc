"""The common part of the pipelines of backpropagation.

Forwards go up, gradients come down, and all micro-batches of a mini-batch end in one update.

The gradients of all micro-batches are added up before the update, so each virtual stage has one U. It is at the end of
its stage's list; `2bw` has it after the last backward of a mini-batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from alray.planning.schedules.actions import Action, ActionKind
from alray.planning.schedules.schedule import Actions, Computation

Step = tuple[ActionKind, int]
"""Kind and virtual stage of a computation."""
Order = Callable[[int, int, int, int], Iterable[Computation]]
"""Takes stage, stages, micro-batches and virtual stages. Returns the computations of a mini-batch without updates."""


def with_messages(order: Order) -> Actions:
    """The actions of a schedule from the order of its computations.

    A receive comes right before the computation that needs it, a send right after the computation that made it. On one
    stage each micro-batch goes through all virtual stages and back before the next one.
    """

    def actions(stage: int, stages: int, batch: int, micro_batches: int, virtual_stages: int) -> tuple[Action, ...]:
        last = stages * virtual_stages - 1
        listed, held = [], set()
        ordered = order if stages > 1 else _alone
        for kind, own, part in ordered(stage, stages, micro_batches, virtual_stages):
            held.add(own)
            down = kind != "F"
            source, goal = (last, 0) if down else (0, last)
            if own != source and kind != "G":
                listed.append(Action(own, "R", batch, part, down))
            listed.append(Action(own, kind, batch, part))
            if own != goal and kind != "G":
                listed.append(Action(own, "S", batch, part, down))
        return (*listed, *(Action(own, "U", batch) for own in sorted(held)))

    return actions


def numbered(steps: Iterable[Step]) -> list[Computation]:
    """Computations of these kinds and virtual stages, each with the next micro-batch in turn. B counts as I and G."""
    done: defaultdict[Step, int] = defaultdict(int)
    listed: list[Computation] = []
    for kind, own in steps:
        first = "I" if kind == "B" else kind
        listed.append((kind, own, done[first, own]))
        done[first, own] += 1
        if kind == "B":
            done["G", own] += 1
    return listed


def _alone(_stage: int, _stages: int, micro_batches: int, virtual_stages: int) -> Iterable[Computation]:
    for part in range(micro_batches):
        for own in range(virtual_stages):
            yield "F", own, part
        for own in reversed(range(virtual_stages)):
            yield "B", own, part
