"""Pipelines of backpropagation: forwards go up, gradients come down, all micro-batches end in one update.

torch.distributed.pipelining executes them; each stage's order of computations is the one its class makes:

    naive               ScheduleGPipe with one micro-batch: one stage works at a time
    gpipe               ScheduleGPipe: all forwards, then all backwards
    1f1b                Schedule1F1B: as soon as a gradient comes, backwards and forwards take turns
    interleaved_1f1b    ScheduleInterleaved1F1B: the same with several virtual stages on each stage
    zero_bubble         ScheduleInterleavedZeroBubble (ZB1P): backwards are split, and the gradients of weights fill
                        what would be idle. It runs on any number of stages, with any number of virtual stages
                        (ScheduleZBVZeroBubble has just two, in the shape of a V).

Three stages, four micro-batches (naive: one), F = 1, B = 2, I = G = 1, without updates and the time of messages:

    naive         stage 0   F......BB
                  stage 1   .F...BB..
                  stage 2   ..FBB....

    gpipe         stage 0   FFFF......BBBBBBBB
                  stage 1   .FFFF...BBBBBBBB..
                  stage 2   ..FFFFBBBBBBBB....

    1f1b          stage 0   FFF....BBFBB.BB.BB
                  stage 1   .FF..BBFBBFBB.BB..
                  stage 2   ..FBBFBBFBBFBB....

    zero_bubble   stage 0   FFF..IGFIGIGIG
                  stage 1   .FF.IFIGFIGIGG
                  stage 2   ..FIFIFIGFIGGG

One action U for each virtual stage ends a stage's list: torch adds up the gradients of all micro-batches first.
"""

from __future__ import annotations

from collections.abc import Iterator

from alray.errors import PlanError
from alray.plan.actions import Action, ActionKind
from alray.spec.micro_batches import PIPELINES, micro_batches_fault, virtual_stages_fault

Computation = tuple[ActionKind, int, int]
"""Kind, virtual stage, micro-batch."""


def check_pipeline(schedule: str, stages: int, micro_batches: int, virtual_stages: int) -> None:
    """Raises PlanError where `schedule` (any, with a pipeline or not) cannot have so many of them."""
    faults = {
        "micro_batches": micro_batches_fault(schedule, stages, micro_batches),
        "virtual_stages": virtual_stages_fault(schedule, virtual_stages),
    }
    for key, fault in faults.items():
        if fault is not None:
            raise PlanError(fault[0], mend=fault[1], key=f"pipeline.{key}")


def compute_order(
    schedule: str, stage: int, stages: int, micro_batches: int, virtual_stages: int = 1
) -> list[Computation]:
    """The computations of one mini-batch on `stage` of `stages` in order, without update and messages."""
    if schedule in ("naive", "gpipe"):
        forwards: list[Computation] = [("F", stage, number) for number in range(micro_batches)]
        return forwards + [("B", stage, number) for number in range(micro_batches)]
    if schedule == "1f1b":
        return _one_forward_one_backward(stage, stages, micro_batches)
    return _interleaved(stage, stages, micro_batches, virtual_stages, split=schedule == "zero_bubble")


def pipeline_actions(
    schedule: str, stage: int, stages: int, batch: int, micro_batches: int, virtual_stages: int
) -> tuple[Action, ...]:
    """What `stage` of `stages` does for mini-batch `batch`: a receive right before the computation that needs it, a
    send right behind the one that made it, and U at the end."""
    assert schedule in PIPELINES
    last = stages * virtual_stages - 1
    actions = []
    for kind, own, number in compute_order(schedule, stage, stages, micro_batches, virtual_stages):
        computation = Action(own, kind, batch, number)
        if kind == "G" or stages == 1:  # virtual stages of one stage hand over without messages
            actions.append(computation)
            continue
        down = kind != "F"
        source, goal = (last, 0) if down else (0, last)
        if own != source:
            actions.append(Action(own, "R", batch, number, down))
        actions.append(computation)
        if own != goal:
            actions.append(Action(own, "S", batch, number, down))
    actions += [Action(own, "U", batch) for own in range(stage, last + 1, stages)]
    return tuple(actions)


def _one_forward_one_backward(stage: int, stages: int, micro_batches: int) -> list[Computation]:
    """Forwards until the first gradient can be there; from then on a backward and a forward in turns."""
    ahead = min(micro_batches, stages - stage)
    order: list[Computation] = [("F", stage, number) for number in range(ahead)]
    for number in range(micro_batches):
        order.append(("B", stage, number))
        if number + ahead < micro_batches:
            order.append(("F", stage, number + ahead))
    return order


def _interleaved(stage: int, stages: int, micro_batches: int, virtual_stages: int, *, split: bool) -> list[Computation]:
    """Forwards to fill the pipeline; then a forward and a backward in turns; then the backwards that are left.

    Split backwards need one forward less per stage above to fill it (their first half is back sooner). Behind the
    first `stage` of them each is followed by the oldest weight gradient that is open.
    """
    per_round = micro_batches // max(1, micro_batches // stages)
    total = virtual_stages * micro_batches
    fill = (virtual_stages - 1) * per_round + (1 if split else 2) * (stages - 1 - stage)
    fill = min(fill, total)

    def own(chunk: int) -> int:
        return chunk * stages + stage

    forwards = [(own(chunk), number) for chunk, number in _turns(micro_batches, virtual_stages, per_round)]
    backwards = [
        (own(virtual_stages - 1 - chunk), number) for chunk, number in _turns(micro_batches, virtual_stages, per_round)
    ]
    order: list[Computation] = [("F", *forward) for forward in forwards[:fill]]
    for place, backward in enumerate(backwards):
        if fill + place < total:
            order.append(("F", *forwards[fill + place]))
        order.append(("I" if split else "B", *backward))
        if split and place >= stage:
            order.append(("G", *backwards[place - stage]))
    if split:
        order += [("G", *backward) for backward in backwards[max(0, total - stage) :]]
    return order


def _turns(micro_batches: int, virtual_stages: int, per_round: int) -> Iterator[tuple[int, int]]:
    """Chunk and micro-batch: a round of micro-batches through the first virtual stage, then the next one, ..."""
    for first in range(0, micro_batches, per_round):
        for chunk in range(virtual_stages):
            for number in range(first, first + per_round):
                yield chunk, number
