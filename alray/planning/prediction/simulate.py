"""Simulation: when each action of a program starts and ends, computed without torch.

A stage does its actions in order, one at a time. A receive starts when its message has arrived. A send starts when its
edge has room: an edge holds `in_flight` mini-batches that wait to be received. Between nodes, a send also waits until
little enough of the messages before it is still on the link, and its message until the stage's network card has sent
those before. A barrier opens when every stage has reached it. Every other action starts as soon as the one before it
ends. Any lists of actions can be simulated, not only those of a schedule.

Events are the actions that wait for another stage, and the first action of each stage. All other times follow by
addition. Events are computed in rounds, each for all stages, and for all durations that are simulated at once. In a
round every stage that need not wait for a later round comes to its next event. So a round has one event of each stage
at most, and needs only those of the rounds before it.

A link carries the messages from one stage to another, one after another, while both compute on. The system takes some
bytes from a sender before they are on their way, so a send waits only if more than that is left of those before it.
All that a stage sends to other nodes goes through its network card, one message after another, whichever neighbour it
is for; what it sends within its node goes through the link of its device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from alray.planning.prediction.dependencies import FIRST_BARRIER, NOTHING, deadlock, find_dependencies
from alray.planning.prediction.program import NUM_KINDS, Codes, Floats, Program, kind_number, kinds, looked_up
from alray.planning.prediction.timeline import Timeline, computations_of, mean_step
from alray.planning.schedules.durations import Durations

_DRAWS = 16  # simulations with random times: 64 steps of a pipeline, whose median is off by a sixth of their deviation
Positions = NDArray[np.int64]
_NONE = -1


def simulate(program: Program, durations: Durations, *, in_flight: int) -> Timeline:
    """The timeline of a program.

    Raises PlanError for a program that cannot end: a message that is never sent or never received, barriers that do
    not agree, or stages that wait for each other. The error says which stage waits for what.
    """
    return simulation_of(program, in_flight, links=len(durations.up_link_s) > 0).timeline(durations)


@lru_cache(maxsize=2)
def simulation_of(program: Program, in_flight: int, *, links: bool) -> Simulation:
    """As `Simulation`, made once for the cuts of a setting that are predicted one after another."""
    return Simulation(program, in_flight, links=links)


class Simulation:
    """A program with what waits for what in it, which no durations change.

    Events are numbered consecutively over all stages, and so are actions.
    """

    def __init__(self, program: Program, in_flight: int, *, links: bool) -> None:
        """
        Args:
            links: whether messages may go from node to node.

        Raises:
            PlanError: for a program that cannot end.
        """
        self._program = program
        dependencies = find_dependencies(program, in_flight)
        on, self._offsets = dependencies.on, dependencies.offsets
        every_kind = np.concatenate([kinds(codes).astype(np.uint8) for codes in program.codes])
        is_event = on != NOTHING
        if links:
            is_event |= np.isin(every_kind, [kind_number("S"), kind_number("S", True)])
        is_event[self._offsets[:-1][np.diff(self._offsets) > 0]] = True
        self._positions = np.flatnonzero(is_event)
        self._first = np.searchsorted(self._positions, self._offsets)  # of each stage
        self._receives = np.isin(every_kind[self._positions], [kind_number("R"), kind_number("R", True)])
        waited = on[self._positions]
        self._remote = np.flatnonzero(waited >= 0)  # the events that wait for an action
        # An awaited action that waits for nothing itself is no event: count from the event before it.
        needed = waited.copy()
        needed[self._remote] = self._event_of(waited[self._remote])
        self._rounds = rounds_of(self._first, needed)
        if self._rounds.stuck:
            stuck = {stage: int(self._positions[at] - self._offsets[stage]) for stage, at in self._rounds.stuck.items()}
            raise deadlock(program, stuck, in_flight)
        last = [self._last_computations(batch) for batch in range(program.num_batches)]
        # The actions whose ends are needed, in order; where among them those are that events wait for, and the last
        # computations of each mini-batch.
        self._asked = np.flatnonzero(np.isin(np.arange(len(on)), np.concatenate([waited[self._remote], *last])))
        self._awaited = np.searchsorted(self._asked, waited[self._remote])
        self._completing = [np.searchsorted(self._asked, actions) for actions in last]

    def _event_of(self, actions: Positions) -> Positions:
        """The last event that does not come after each of these actions."""
        found: Positions = np.searchsorted(self._positions, actions, side="right") - 1
        return found

    def _last_computations(self, batch: int) -> Positions:
        """The last computation of a mini-batch on each stage that has one."""
        own = [computations_of(codes, batch) for codes in self._program.codes]
        return np.array(
            [first + each[-1] for first, each in zip(self._offsets[:-1], own, strict=True) if len(each)], dtype=np.int64
        )

    def timeline(self, durations: Durations) -> Timeline:
        """When each action starts and ends with these durations."""
        times = self._times(self._work([durations]), self._zeros(1))[:, 0]
        starts, ends = [], []
        seconds = _seconds(durations, self._program)
        for stage, first in enumerate(self._offsets[:-1]):
            spent = looked_up(seconds, self._program, stage)
            before = np.cumsum(spent) - spent
            event = self._event_of(first + np.arange(len(spent)))
            starts.append(times[event] + (before - before[self._positions[event] - first]))
            ends.append(starts[-1] + spent)
        return Timeline(self._program, tuple(starts), tuple(ends))

    def uneven_steps(self, durations: Durations, jitter_s: float) -> Floats:
        """Times of steps in which each computation takes a random time: [steps, `_DRAWS`], seconds.

        Only the steps in the second half of the program count, where the pipeline is full.

        Each computation's time is drawn from a gamma distribution with its duration as mean and `jitter_s` times its
        duration as variance, independently of all others. So a computation of two parts is as uneven as its parts are
        one after the other. Messages and averages always take as long. The draws are the same for the same program.
        """
        completed = self._completed(self._work([durations] * _DRAWS, jitter_s), repeats=1)
        steady = self._program.steady_batches
        return np.diff(np.stack(completed[(steady - 1) // 2 : steady]), axis=0) if steady > 1 else completed[0]

    def step_times(self, every: Sequence[Durations], *, repeats: int | None = None) -> Floats:
        """The step time with each of these durations, as `timeline(...).step_time_s` gives it.

        Latencies and buffers are those of the first.

        Args:
            repeats: how many mini-batches there are where the program is of one, and stages do it again and again. None
                of its messages may be on its way any longer when a stage sends its first one of the next mini-batch.
        """
        completed = self._completed(self._work(every), repeats=repeats or 1)
        steps: Floats = mean_step(completed.__getitem__, repeats or self._program.steady_batches)
        return steps

    def _completed(self, work: _Work, *, repeats: int) -> list[Floats]:
        """When each mini-batch is completed on all stages, with each of the durations."""
        begins = self._zeros(work.gap.shape[1])
        completed: list[Floats] = []
        for _ in range(repeats):
            times = self._times(work, begins)
            ends = times[self._event_of(self._asked)] + work.after
            completed += [ends[actions].max(axis=0) for actions in self._completing]
            begins = times[self._first[1:] - 1] + work.rest
        return completed

    def _zeros(self, durations: int) -> Floats:
        return np.zeros((self._program.stages, durations))

    def _work(self, every: Sequence[Durations], jitter_s: float = 0.0) -> _Work:
        """
        Args:
            jitter_s: as of `uneven_steps`, for durations that are all the same; 0: every action takes its duration.
        """
        program = self._program
        generator = np.random.default_rng(0)
        seconds = np.stack([_seconds(durations, program) for durations in every], axis=-1)
        on_links = seconds_on_links(every, program)
        gap, rest = np.zeros((len(self._positions), len(every))), self._zeros(len(every))
        after = np.zeros((len(self._asked), len(every)))
        packing = np.zeros_like(gap) if on_links is not None else None
        for stage, (first, end) in enumerate(zip(self._offsets, self._offsets[1:], strict=False)):
            spent = looked_up(seconds, program, stage)
            if jitter_s > 0.0:
                computed = looked_up(_seconds(every[0].computing, program), program, stage)[:, None]
                spent = spent - computed + generator.gamma(computed / jitter_s, jitter_s, spent.shape)
            until = np.cumsum(spent, axis=0)
            own = slice(self._first[stage], self._first[stage + 1])
            positions = self._positions[own] - first
            before = until[positions] - spent[positions]
            gap[own][1:] = np.diff(before, axis=0)
            if packing is not None:
                packing[own] = spent[positions]
            if len(spent):
                rest[stage] = until[-1] - before[-1]
            asked = slice(*np.searchsorted(self._asked, [first, end]))
            actions = self._asked[asked]
            after[asked] = until[actions - first] - before[self._event_of(actions) - own.start]
        lag = np.full_like(gap, -np.inf)
        lag[self._remote] = after[self._awaited]
        lag[self._receives] += every[0].latency_s
        links = None
        if on_links is not None and packing is not None:
            links = LinkEvents.of(program, self._positions, on_links[self._positions], packing, every[0])
            waited = self._asked[self._awaited]
            by_link = self._receives[self._remote] & is_on_link(every[0], program)[waited]
            lag[self._remote[by_link]] += links.after(self._remote[by_link], packing[self._event_of(waited[by_link])])
        return _Work(gap, lag, after, rest, every[0].latency_s, links)

    def _times(self, work: _Work, begins: Floats) -> Floats:
        """When each event starts, where each stage begins at these seconds."""
        return self._rounds.times(begins, work.gap, work.lag, work.latency_s, work.links)


@dataclass(frozen=True, eq=False)
class _Work:
    """Seconds between events and actions, of shape [events or actions, n] for n durations.

    Attributes:
        gap: from the event before on the same stage to each event, if that waits for nothing.
        lag: from the start of the event that it waits for; -inf where it waits for none.
        after: from the start of the last event until the end of each action that `Simulation` asks for.
        rest: from the start of the last event of each stage until the end of its list.
        latency_s: of a barrier.
        links: None where no message goes from node to node.
    """

    gap: Floats
    lag: Floats
    after: Floats
    rest: Floats
    latency_s: float
    links: LinkEvents | None


def _seconds(durations: Durations, program: Program) -> Floats:
    """[virtual stages, 2 * NUM_KINDS]: seconds of each kind of action; the second half is for parts with labels."""
    table = np.zeros((program.stages * program.virtual_stages, 2 * NUM_KINDS))
    for kind, seconds in durations.computations.items():
        if len(seconds):
            table[:, kind_number(kind)] = seconds
    labels = durations.labels_up_s if len(durations.labels_up_s) else durations.up_s
    for first, down, seconds in ((0, False, durations.up_s), (NUM_KINDS, False, labels), (0, True, durations.down_s)):
        if len(seconds):
            half = np.array(seconds, dtype=float) / 2
            table[:-1, first + kind_number("R" if down else "S", down)] = half
            table[1:, first + kind_number("S" if down else "R", down)] = half
    return table


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


def seconds_on_links(every: Sequence[Durations], program: Program) -> Floats | None:
    """[actions, n]: seconds for which each action takes a link, over all stages; None if none of these n durations has
    a link."""
    if not any(len(durations.up_link_s) for durations in every):
        return None
    table = np.stack([_table(durations, program) for durations in every], axis=-1)
    return np.concatenate([looked_up(table, program, stage) for stage in range(program.stages)])


def is_on_link(durations: Durations, program: Program) -> NDArray[np.bool_]:
    """Whether each action takes a link, over all stages.

    The setting decides this and no cut, so that cuts which are simulated at once are predicted as each by itself. A
    message without bytes takes a link for no time, and its latency passes.
    """
    table = np.zeros((program.stages * program.virtual_stages, 2 * NUM_KINDS))
    for half in (0, NUM_KINDS):
        table[:-1, half + kind_number("S")] = durations.has_link
    table[1:, kind_number("S", True)] = durations.has_link
    return np.concatenate([looked_up(table, program, stage) > 0 for stage in range(program.stages)])


def _table(durations: Durations, program: Program) -> Floats:
    """As `alray.planning.prediction.program.looked_up` reads it. Only sends take a link."""
    table = np.zeros((program.stages * program.virtual_stages, 2 * NUM_KINDS))
    labels = durations.labels_link_s if len(durations.labels_link_s) else durations.up_link_s
    table[:-1, kind_number("S")], table[:-1, NUM_KINDS + kind_number("S")] = durations.up_link_s, labels
    table[1:, kind_number("S", True)] = durations.down_link_s
    return table


@dataclass(frozen=True, eq=False)
class LinkEvents:
    """The effect of links on each event of a simulation.

    Attributes:
        over: whether it is a send over a link. For these, seconds: for how long it takes the link.
        packing: seconds before that.
        before: the last send over the same link, or -1.
        ahead: the last send through the same card, or the same link of a device, or -1; `before` on a line of its own.
        buffer_s: how long the sends before may still take the link.
    """

    over: NDArray[np.bool_]
    seconds: Floats
    packing: Floats
    before: Codes
    ahead: Codes
    buffer_s: Floats
    latency_s: Floats
    """The latency of the link of each send or receive."""

    @classmethod
    def of(
        cls, program: Program, positions: NDArray[np.int64], seconds: Floats, packing: Floats, durations: Durations
    ) -> LinkEvents:
        """
        Args:
            positions: the number of each event's action, over all stages.
            seconds, packing: of each event.
        """
        over = is_on_link(durations, program)[positions]
        codes = np.concatenate(program.codes)[positions]
        lower = np.concatenate([_lower(program, stage) for stage in range(program.stages)])[positions]
        goes_down = kinds(codes) == kind_number("S", True)
        stages = np.array([program.stage_of(virtual) for virtual in range(int(lower.max()) + 2)])
        source, target = stages[lower + goes_down], stages[lower + ~goes_down]
        before = _last(np.where(over, source * program.stages + target, _NONE))
        edge = np.clip(lower, 0, len(durations.link_buffer_s) - 1)
        through = np.array(durations.link_through or ["itself"] * len(durations.link_buffer_s))[edge]
        shared = np.where(through == "card", source, program.stages + source)
        ahead = np.where(through == "itself", before, _last(np.where(over & (through != "itself"), shared, _NONE)))
        return cls(
            over,
            seconds,
            packing,
            before,
            ahead,
            np.array(durations.link_buffer_s)[edge],
            np.array(durations.link_latency_s)[edge],
        )

    def after(self, receives: Codes, packing: Floats) -> Floats:
        """How much later each of these receives may start than its send, besides the time on the link.

        The lag of a receive counts from the start of its send and holds the packing; a message leaves the link later.
        """
        latency_s: Floats = self.latency_s[receives, None] - packing
        return latency_s


def _last(ways: Codes) -> Codes:
    """For each event, the last one before it that goes the same way, or -1; events that go no way are -1."""
    found = np.full(len(ways), _NONE)
    order = np.argsort(ways, kind="stable")
    again = (ways[order[1:]] == ways[order[:-1]]) & (ways[order[1:]] != _NONE)
    found[order[1:][again]] = order[:-1][again]
    return found


def _lower(program: Program, stage: int) -> Codes:
    """The lower (virtual) stage of the edge that each send or receive of a stage uses."""
    is_lower = np.isin(kinds(program.codes[stage]), [kind_number("S"), kind_number("R", True)])
    lower: Codes = program.virtual(stage) - ~is_lower
    return lower
