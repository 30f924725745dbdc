"""Rounds: the events of a simulation in an order in which numpy computes many of them at once.

In a round every stage that need not wait for a later round comes to its next event. So a round has one event of each
stage at most, and needs only those of the rounds before it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from alray.planning.prediction.dependencies import FIRST_BARRIER, NOTHING
from alray.planning.prediction.links import LinkEvents
from alray.planning.prediction.program import Floats

Positions = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rounds:
    """
    Attributes:
        order: all events, round by round.
        ends: the end of each round in `order`.
        barriers: which rounds are barriers, where all stages start together.
        slots: for each event, where its time stands: behind the beginnings of the stages, in the order of `order`.
        before, on: for each entry of `order`, where the time of the event before it on its stage stands, and that of
            the one that it waits for; where there is none, the beginning of the stage.
        stuck: for each stage that cannot proceed, the event at which it waits; `order` then lacks some.
    """

    order: Positions
    ends: list[int]
    barriers: frozenset[int]
    slots: Positions
    before: Positions
    on: Positions
    stuck: dict[int, int]

    def times(self, begins: Floats, gap: Floats, lag: Floats, barrier_s: float, links: LinkEvents | None) -> Floats:
        """When each event starts, of shape [events, n] for n simulations.

        Args:
            begins: when each stage begins, of shape [stages, n].
            gap, lag: seconds after the event before on its stage, and after the one that it waits for.
            barrier_s: from the arrival of the last stage at a barrier until it opens.
            links: None where no message goes over a link.
        """
        stages = len(begins)
        times = np.zeros((stages + len(gap), gap.shape[1]))
        times[:stages] = begins
        sent = times if links is None else times.copy()  # when the message of an event has left
        gap, lag = gap[self.order], lag[self.order]
        first = 0
        for number, end in enumerate(self.ends):
            free = times.take(self.before[first:end], axis=0)
            free += gap[first:end]
            own = times[stages + first : stages + end]
            if number in self.barriers:
                own[:] = free.max(axis=0) + (barrier_s if stages > 1 else 0.0)
            else:
                arrived = sent.take(self.on[first:end], axis=0)
                arrived += lag[first:end]
                np.maximum(free, arrived, out=own)
            if links is not None:
                events = self.order[first:end]
                leaves = sent[stages + first : stages + end]
                leaves[:] = own
                over = np.flatnonzero(links.over[events])
                events = events[over]
                packing = links.packing[events]
                room = sent[self.slots[links.before[events]]] - packing - links.buffer_s[events, None]
                own[over] = np.maximum(own[over], np.where(links.before[events, None] >= 0, room, -np.inf))
                card = np.where(links.ahead[events, None] >= 0, sent[self.slots[links.ahead[events]]], 0.0)
                leaves[over] = np.maximum(own[over] + packing, card) + links.seconds[events]
            first = end
        found: Floats = times[self.slots]
        return found


def rounds_of(first: Positions, needed: Positions) -> Rounds:
    """
    Args:
        first: the first event of each stage, and the number of all.
        needed: the event that each one waits for, NOTHING or a barrier.
    """
    size, stages = len(needed), len(first) - 1
    nothing, never = size, size + 1
    waits = np.where(needed >= 0, needed, np.where(needed == NOTHING, nothing, never))
    known = np.zeros(size + 2, dtype=bool)
    known[nothing] = True
    following, last = first[:-1].copy(), first[1:]
    active = np.flatnonzero(following < last)
    order: list[Positions] = []
    barriers: set[int] = set()
    stuck: dict[int, int] = {}
    while len(active):
        going, events = active, following[active]
        ready = known[waits[events]]
        if ready.any():
            if not ready.all():
                going, events = going[ready], events[ready]
        elif len(going) == stages and _at_barrier(needed[events]):
            barriers.add(len(order))
        else:
            stuck = dict(zip(going.tolist(), events.tolist(), strict=True))
            break
        known[events] = True
        order.append(events)
        following[going] = events + 1
        if np.any(events + 1 == last[going]):
            active = active[following[active] < last[active]]
    found = np.concatenate([np.zeros(0, dtype=np.int64), *order])
    slots = np.zeros(size, dtype=np.int64)
    slots[found] = stages + np.arange(len(found))
    of_stage = np.repeat(np.arange(stages), np.diff(first))
    is_first = np.zeros(size + 1, dtype=bool)
    is_first[first] = True
    before = np.where(is_first[found], of_stage[found], slots[found - 1])
    on = np.where(needed[found] >= 0, slots[needed[found]], of_stage[found])
    ends = np.cumsum([len(events) for events in order], dtype=np.int64).tolist()
    return Rounds(found, ends, frozenset(barriers), slots, before, on, stuck)


def _at_barrier(needed: Positions) -> bool:
    """Whether all of these wait at the same barrier."""
    return bool(needed[0] <= FIRST_BARRIER and np.all(needed == needed[0]))
