"""The common part of the pipelines of backpropagation.

Forwards go up, gradients come down, and all micro-batches of a mini-batch end in one update.

The gradients of all micro-batches are added up before the update, so each virtual stage has one U. It is at the end of
its stage's list; `2bw` has it after the last backward of a mini-batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from alray.planning.schedules.actions import Action, ActionKind
from alray.planning.schedules.durations import Durations
from alray.planning.schedules.placement import Place, of_stages, round_robin
from alray.planning.schedules.schedule import Actions, Bound, Computation

Step = tuple[ActionKind, int]
"""Kind and virtual stage of a computation."""
Order = Callable[[int, int, int, int], Iterable[Computation]]
"""Takes stage, stages, micro-batches and virtual stages. Returns the computations of a mini-batch without updates."""


def with_messages(order: Order) -> Actions:
    """The actions of a schedule from the order of its computations.

    A receive comes right before the computation that needs it, a send right after the computation that made it. A
    stage alone needs no messages: each micro-batch goes through all virtual stages and back before the next one.
    """

    def actions(
        stage: int, stages: int, batch: int, micro_batches: int = 1, virtual_stages: int = 1
    ) -> tuple[Action, ...]:
        if stages == 1:
            listed = [Action(own, kind, batch, part) for kind, own, part in _alone(micro_batches, virtual_stages)]
            return (*listed, *(Action(own, "U", batch) for own in range(virtual_stages)))
        last = stages * virtual_stages - 1
        listed, held = [], set()
        for kind, own, part in order(stage, stages, micro_batches, virtual_stages):
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


def _alone(micro_batches: int, virtual_stages: int) -> Iterable[Computation]:
    for part in range(micro_batches):
        for own in range(virtual_stages):
            yield "F", own, part
        for own in reversed(range(virtual_stages)):
            yield "B", own, part


def two_phases_bound(durations: Durations, stages: int, micro_batches: int) -> float:
    """The bound where all forwards come before all backwards.

    Each phase is a flow shop: one micro-batch passes all stages, the others follow at the pace of the slowest stage.
    The way back ends in the update of stage 0. Stage r cannot begin the next mini-batch before its update either,
    so the bound is the largest over the pipelines that begin at a stage r.
    """
    forward, backward = durations.forward_s, durations.backward_s
    backwards = [down + again for down, again in zip(backward, recomputed(durations), strict=True)]
    update = durations.update_s
    return max(
        sum(forward[first:])
        + sum(backward[first:])
        + (micro_batches - 1) * (max(forward[first:]) + max(backwards[first:]))
        + update[first]
        for first in range(stages)
    )


def way_bound(*, split_backward: bool = False, place: Place = round_robin) -> Bound:
    """The bound where forwards and backwards take turns.

    One micro-batch goes up to stage s, stage s does all its work, and the last micro-batch comes back down; with
    virtual stages the way leads through the first one of each stage. As in `two_phases_bound` the way may begin and end
    at any stage r.

    Args:
        split_backward: only I, the gradient of the input, is on the way; G is not. Then F + I + G + U of one stage may
            be longer than the way.
        place: of virtual stages. The way leads up through the first one of each stage, and down through it.
    """

    def bound(durations: Durations, stages: int, micro_batches: int) -> float:
        split = split_backward and stages > 1
        down = durations.input_gradient_s if split else durations.backward_s
        update = of_stages(durations.update_s, stages, place)
        way = [up + back for up, back in zip(durations.forward_s, down, strict=True)]
        every = [both + again for both, again in zip(way, recomputed(durations), strict=True)]
        work = [micro_batches * seconds for seconds in of_stages(every, stages, place)]
        rest = durations.weight_gradient_s if split else [0.0] * len(way)
        all_rest = of_stages(rest, stages, place)
        longest = 0.0
        for first in range(stages):
            own = work[first] + micro_batches * all_rest[first] + update[first]
            longest = max(longest, own)
            passed = 0.0
            for stage in range(first, stages):
                longest = max(longest, passed + work[stage] + rest[first] + update[first])
                passed += way[stage]
        return longest

    return bound


def recomputed(durations: Durations) -> list[float]:
    """Seconds of C of one micro-batch. It is not on the way of the first micro-batch: it needs no gradient."""
    return list(durations.recompute_s) or [0.0] * len(durations.forward_s)


IDLE = "with {micro_batches} the stages idle for {idle} of the step, and {slowest}"
"""The sentence that says what limits the step of a pipeline with micro-batches."""
