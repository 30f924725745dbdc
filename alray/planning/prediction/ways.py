"""Ways through a pipeline: which computations follow each other for so long that no step can be shorter.

A way is looked for at each stage. It follows the stage's list; where a computation waits for a micro-batch that is on
other stages, it may follow the micro-batch instead. Other stages are taken to have time at once, so a way can only be
shorter than the step. It counts computations, not seconds, so it holds for every cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alray.planning.prediction.program import Floats, Program, chunks, kind_number, kinds, parts
from alray.planning.schedules.actions import ActionKind

KINDS: tuple[ActionKind, ...] = ("F", "B", "I", "G", "C", "U")
"""The computations of a pipeline, in the order of `Ways.own`."""
_BACK = (KINDS.index("B"), KINDS.index("I"))

Counts = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Ways:
    """Ways of a schedule, each from a moment of one mini-batch to the same moment of the next one. Counts need not be
    whole: of a way through several mini-batches they are those of one.

    Attributes:
        stage: [ways]; the stage whose list a way follows.
        own: [ways, virtual stages of it, KINDS]; how many of its computations are on the way.
        up: [ways, virtual stages of it]; how many micro-batches it follows up to this virtual stage, from the one below
            that the stage holds, or from the first of all.
        top: [ways]; how many from its highest virtual stage up and back.
        down: [ways, virtual stages of it]; how many down to this one, from the one above that the stage holds.
        leaves: [ways]; how many from its lowest virtual stage down to stage 0.
        tail: [ways, virtual stages of stage 0, KINDS]; what stage 0 then still does.
    """

    stage: Counts
    own: Counts
    up: Counts
    top: Counts
    down: Counts
    leaves: Counts
    tail: Counts


@dataclass(frozen=True, eq=False)
class Lists:
    """The computations of all stages for one mini-batch, without updates, as arrays of shape [stages, longest list].

    Attributes:
        kind: as in KINDS; -1 where a list has ended.
        held: the virtual stage that computes: its number among those of the stage, from 0.
        part: the micro-batch.
        forward, backward: [stages, virtual stages of each, micro-batches]; where F stands, and B or I.
        turns: [micro-batches]; the last micro-batch whose F stands before B, or I, of each one, on the highest virtual
            stage of all.
    """

    kind: Counts
    held: Counts
    part: Counts
    forward: Counts
    backward: Counts
    turns: Counts

    @classmethod
    def of(cls, program: Program, micro_batches: int) -> Lists:
        """
        Args:
            program: of one mini-batch.
        """
        numbers = {kind_number(kind): index for index, kind in enumerate(KINDS) if kind != "U"}
        table = np.full(256, -1)
        table[list(numbers)] = list(numbers.values())
        every = [codes[table[kinds(codes)] >= 0] for codes in program.codes]
        shape = len(every), max(map(len, every))
        kind, held, part = np.full(shape, -1), np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        for number, codes in enumerate(every):
            kind[number, : len(codes)] = table[kinds(codes)]
            held[number, : len(codes)], part[number, : len(codes)] = chunks(codes), parts(codes)
        places = np.zeros((2, shape[0], program.virtual_stages, micro_batches), dtype=np.int64)
        for found, of_kind in zip(places, (kind == KINDS.index("F"), np.isin(kind, _BACK)), strict=True):
            stage, place = np.nonzero(of_kind)
            found[stage, held[stage, place], part[stage, place]] = place
        top, highest = program.stage_of(shape[0] * program.virtual_stages - 1), program.virtual_stages - 1
        forwards = np.flatnonzero((kind[top] == KINDS.index("F")) & (held[top] == highest))
        before = np.searchsorted(forwards, places[1, top, highest]) - 1
        return cls(kind, held, part, places[0], places[1], turns=part[top, forwards[before]])


def longest_ways(lists: Lists, virtual: Counts, seconds: Floats, passing: Floats) -> Ways:
    """A way at each stage that is longest with these durations, from the first forward of stage 0 to its update.

    Args:
        virtual: [stages, virtual stages of each]; those that a stage holds, the lowest first.
        seconds: [virtual stages, KINDS].
        passing: [2, virtual stages]; of a micro-batch that passes a stage on its way up, and down.
    """
    before = np.concatenate([np.zeros((2, 1)), np.cumsum(passing, axis=1)], axis=1)
    up = before[0][virtual]  # from the virtual stage of the stage below
    up[:, 1:] -= before[0][virtual[:, :-1] + 1]
    top = (before[:, -1, None] - before[:, virtual[:, -1] + 1]).sum(axis=0)
    down = np.zeros(virtual.shape)
    down[:, :-1] = before[1][virtual[:, 1:]] - before[1][virtual[:, :-1] + 1]
    (stages, held), length = virtual.shape, lists.kind.shape[1]
    every = np.arange(stages)
    ends = np.full((length + 1, stages), -np.inf)  # of each computation; the last row is for what does not exist
    source = np.full((length, stages), length)  # the computation from where a micro-batch comes back to each one
    follows = np.zeros((length, stages), dtype=bool)  # whether the way comes from there
    forward, back = lists.kind == KINDS.index("F"), np.isin(lists.kind, _BACK)
    for place in range(length):
        kind, own, part = lists.kind[:, place], lists.held[:, place], lists.part[:, place]
        goes_up, goes_down, at_top = forward[:, place] & (own > 0), back[:, place], own == held - 1
        below = lists.forward[every, np.maximum(own - 1, 0), part]
        above = lists.backward[every, np.minimum(own + 1, held - 1), part]
        turned = np.where(at_top, lists.forward[every, own, lists.turns[part]], above)
        source[place] = np.where(goes_up, below, np.where(goes_down, turned, length))
        delay = np.where(goes_up, up[every, own], np.where(at_top, top, down[every, own]))
        ready = ends[source[place], every] + delay
        in_order = ends[place - 1] if place else up[:, 0]
        follows[place] = ready > in_order
        ends[place] = np.maximum(in_order, ready)
        ends[place] += np.where(kind >= 0, seconds[virtual[every, own], kind], 0.0)
    counts = np.zeros((stages, held, len(KINDS)), dtype=np.int64)
    ups, downs = np.zeros((2, stages, held), dtype=np.int64)
    tops = np.zeros(stages, dtype=np.int64)
    lowest = back & (lists.held == 0)
    goal = length - 1 - np.argmax(lowest[:, ::-1], axis=1)
    place, going = goal.copy(), every
    while len(going):
        at = place[going]
        kind, own = lists.kind[going, at], lists.held[going, at]
        real = kind >= 0
        counts[going[real], own[real], kind[real]] += 1
        came = follows[at, going]
        up_here, at_top = came & (kind == KINDS.index("F")), own == held - 1
        ups[going[up_here], own[up_here]] += 1
        tops[going[came & ~up_here & at_top]] += 1
        down_here = came & ~up_here & ~at_top
        downs[going[down_here], own[down_here]] += 1
        place[going] = np.where(came, source[at, going], at - 1)
        going = going[place[going] >= 0]
    ups[:, 0] += 1
    last = lists.backward[0, 0, lists.part[every, goal]]  # where the micro-batch comes down to stage 0
    behind = np.zeros((length + 1, held, len(KINDS)), dtype=np.int64)
    real = lists.kind[0] >= 0
    behind[np.arange(length)[real], lists.held[0][real], lists.kind[0][real]] = 1
    tail = behind[::-1].cumsum(axis=0)[::-1][last + 1]
    tail[:, :, KINDS.index("U")] = 1
    return Ways(every, counts, ups, tops, downs, np.ones(stages, dtype=np.int64), tail)


def circling_ways(lists: Lists) -> Ways:
    """Of a schedule without a flush: each stage computes so many forwards before the first backward, and never has more
    micro-batches above it. So each of them can come back only once in so many forwards.

    These ways are as long as the micro-batches of one mini-batch take, and leave out the update.
    """
    stages, _, micro_batches = lists.forward.shape
    first = lists.backward[:, 0, :1]
    ahead = np.sum((lists.kind == KINDS.index("F")) & (np.arange(lists.kind.shape[1]) < first), axis=1)
    rounds = micro_batches / ahead
    counts = np.zeros((stages, 1, len(KINDS)))
    counts[:, 0, KINDS.index("F")] = counts[:, 0, KINDS.index("B")] = rounds
    nothing, none = np.zeros((stages, 1)), np.zeros(stages)
    return Ways(np.arange(stages), counts, nothing, rounds, nothing, none, np.zeros_like(counts))


def own_ways(lists: Lists, held: int) -> Ways:
    """The whole list of each stage, and its update."""
    stages = len(lists.kind)
    counts = np.zeros((stages, held, len(KINDS)), dtype=np.int64)
    stage, place = np.nonzero(lists.kind >= 0)
    np.add.at(counts, (stage, lists.held[stage, place], lists.kind[stage, place]), 1)
    counts[:, :, KINDS.index("U")] = 1
    nothing, none = np.zeros((stages, held), dtype=np.int64), np.zeros(stages, dtype=np.int64)
    return Ways(np.arange(stages), counts, nothing, none, nothing, none, np.zeros_like(counts))
