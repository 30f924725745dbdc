"""interleaved_1f1b: 1f1b with several virtual stages on each stage, so that the pipeline fills sooner.

Three micro-batches on three stages with two virtual stages each, F = 1 s and B = 2 s; updates and messages take no
time:

    stage 0   FFFFFF....BB.BB.BBBBBBBB
    stage 1   .FFFFFF.BB.BB.BBBBBBBB..
    stage 2   ..FFFFBBFBBFBBBBBBBB....

Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021.
"""

from __future__ import annotations

from collections.abc import Iterator

from alray.planning.schedules.micro_batches import whole_rounds
from alray.planning.schedules.pipeline import Order, with_messages
from alray.planning.schedules.schedule import Computation, Schedule


def interleaved(*, split_backward: bool) -> Order:
    """Forwards to fill the pipeline; then a forward and a backward in turns; then the backwards that are left.

    Split backwards need one forward less per stage above to fill the pipeline, because I comes back sooner than a whole
    B. Stage s leaves out G after its first s backwards; from then on the oldest open G follows each I.
    """

    def order(stage: int, stages: int, micro_batches: int, virtual_stages: int) -> list[Computation]:
        per_round = micro_batches // max(1, micro_batches // stages)
        total = virtual_stages * micro_batches
        fill = (virtual_stages - 1) * per_round + (1 if split_backward else 2) * (stages - 1 - stage)
        fill = min(fill, total)
        rounds = list(_rounds(micro_batches, virtual_stages, per_round))
        forwards = [(chunk * stages + stage, number) for chunk, number in rounds]
        backwards = [((virtual_stages - 1 - chunk) * stages + stage, number) for chunk, number in rounds]
        listed: list[Computation] = [("F", *forward) for forward in forwards[:fill]]
        for place, backward in enumerate(backwards):
            if fill + place < total:
                listed.append(("F", *forwards[fill + place]))
            listed.append(("I" if split_backward else "B", *backward))
            if split_backward and place >= stage:
                listed.append(("G", *backwards[place - stage]))
        if split_backward:
            listed += [("G", *backward) for backward in backwards[max(0, total - stage) :]]
        return listed

    return order


def _rounds(micro_batches: int, virtual_stages: int, per_round: int) -> Iterator[tuple[int, int]]:
    """Virtual stage (its number within the stage) and micro-batch: a round of micro-batches goes through the first
    virtual stage, then through the next one, and so on; then comes the next round."""
    for first in range(0, micro_batches, per_round):
        for chunk in range(virtual_stages):
            for number in range(first, first + per_round):
                yield chunk, number


SCHEDULE = Schedule(
    name="interleaved_1f1b",
    methods="backpropagation",
    actions=with_messages(interleaved(split_backward=False)),
    demand=whole_rounds("interleaved_1f1b"),
    fewest_virtual_stages=2,
)
