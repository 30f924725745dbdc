"""Simulation: when each action of a program starts and ends, computed without torch.

A stage does its actions in order, one at a time. A receive starts when its message has arrived. A send starts when its
edge has room: an edge holds `in_flight` mini-batches that wait to be received. Every other action starts as soon as the
one before it ends. Any lists of actions can be simulated, not only those of a schedule.

Two more kinds of lists make waits alike. A barrier is a list of arrivals, one of each stage; what comes behind it waits
for the last one. What messages between nodes go through is a list of messages, one after another, while both stages
compute on: all that a stage sends to other nodes goes through its network card, whichever neighbour it is for, and what
it sends within its node through the link of its device. The system takes some bytes from a sender before they are on
their way, so a send waits only if more than that is left of those before it.

Events are the actions that wait for another list, and the beginning of each list. All other times follow by addition.
An event starts when the last of what it waits for is done. Events are computed in rounds, for all durations that are
simulated at once: those of a round wait for events of the rounds before it alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from alray.planning.prediction.dependencies import FIRST_BARRIER, NOTHING, deadlock, find_dependencies
from alray.planning.prediction.program import NUM_KINDS, Floats, Program, kind_number, kinds, looked_up
from alray.planning.prediction.timeline import Timeline, computations_of, mean_step
from alray.planning.schedules.durations import Durations, Through

if TYPE_CHECKING:
    from alray.planning.schedules.durations import Seconds

_DRAWS = 16  # simulations with random times: 64 steps of a pipeline, whose median is off by a sixth of their deviation
Positions = NDArray[np.int64]
_NONE = -1


def simulate(program: Program, durations: Durations, *, in_flight: int) -> Timeline:
    """The timeline of a program.

    Raises PlanError for a program that cannot end: a message that is never sent or never received, barriers that do
    not agree, or stages that wait for each other. The error says which stage waits for what.
    """
    return simulation_of(program, in_flight, durations.lines).timeline(durations)


def unhindered_steps(program: Program, durations: Durations) -> Floats:
    """The step of each cut that the durations are of, if messages take no time and always find room."""
    return simulation_of(program, None).step_times(durations.unhindered)


@lru_cache(maxsize=2)
def simulation_of(program: Program, in_flight: int | None, lines: tuple[Through | None, ...] = ()) -> Simulation:
    """As `Simulation`, made once for the cuts of a setting that are predicted one after another."""
    return Simulation(program, in_flight, lines)


class Simulation:
    """A program with what waits for what in it, which no durations change.

    Actions are numbered consecutively over all stages. So are events: the beginnings of the stages, the actions that
    wait for other lists, the arrivals at barriers, and the messages on lines.
    """

    def __init__(self, program: Program, in_flight: int | None, lines: tuple[Through | None, ...] = ()) -> None:
        """
        Args:
            in_flight: mini-batches that an edge holds; None: any number.
            lines: as of `Durations`.

        Raises:
            PlanError: for a program that cannot end.
        """
        self._program = program
        dependencies = find_dependencies(program, in_flight)
        on, self._offsets = dependencies.on, dependencies.offsets
        self._kinds = np.concatenate([kinds(codes) for codes in program.codes])
        self._sent = Sent.of(program, lines)
        is_event = on != NOTHING
        is_event[self._sent.actions] = True
        self._actions = np.flatnonzero(is_event)
        self._event = self._events_of_actions()
        self._waits = self._all_waits(on)
        self._rounds = Rounds.of(program.stages, self._waits)
        if len(self._rounds.missing):
            raise deadlock(program, self._stuck())
        last = [self._last_computations(batch) for batch in range(program.num_batches)]
        self._completing = [actions for actions in last if len(actions)]

    def _events_of_actions(self) -> Positions:
        """For each action, the event from which its times are counted: the last one of its stage up to it."""
        stages, size = self._program.stages, len(self._kinds)
        events = np.full(size, _NONE)
        begun = np.flatnonzero(np.diff(self._offsets) > 0)
        events[self._offsets[begun]] = begun
        events[self._actions] = stages + np.arange(len(self._actions))
        found: Positions = events[np.maximum.accumulate(np.where(events != _NONE, np.arange(size), 0))]
        return found

    def _all_waits(self, on: Positions) -> Waits:
        """
        Args:
            on: the action, or barrier, that each action waits for.
        """
        stages, size, sent, actions = self._program.stages, len(on), self._sent, self._actions
        events, on = stages + np.arange(len(actions)), on[actions]
        # The event before on the same stage.
        before = np.where(np.isin(actions, self._offsets[:-1]), self._stage_of(actions), self._event[actions - 1])
        # The numbers of arrivals at each barrier follow those of actions; the numbers of messages follow these.
        at_barrier = np.flatnonzero(on <= FIRST_BARRIER)
        at_barrier = at_barrier[np.lexsort((actions[at_barrier], -on[at_barrier]))]
        arrivals = stages + len(actions) + np.arange(len(at_barrier))
        messages = stages + len(actions) + len(at_barrier) + np.arange(len(sent.actions))
        message = np.full(size, _NONE)
        message[sent.actions] = messages
        receives = np.isin(self._kinds[actions], [kind_number("R"), kind_number("R", True)])
        awaited = np.maximum(on, 0)
        over_line = np.flatnonzero((on >= 0) & receives & (message[awaited] != _NONE))
        direct = np.flatnonzero((on >= 0) & ~(receives & (message[awaited] != _NONE)))
        follows = np.flatnonzero(np.arange(len(arrivals)) % stages > 0)
        opens = arrivals[np.arange(len(arrivals)) // stages * stages + stages - 1]
        ahead, same_way = np.flatnonzero(sent.ahead != _NONE), np.flatnonzero(sent.before != _NONE)
        rows = Rows(size, len(sent.actions))
        base = np.full(stages + len(actions) + len(arrivals) + len(messages), rows.zero)
        base[events] = actions
        line = message[awaited[over_line]] - messages[:1]
        packed = self._event[sent.actions]
        return Waits.of(
            base,
            [
                (events, before, actions, False),
                (events[direct], self._event[on[direct]], rows.end + on[direct], receives[direct]),
                (arrivals, before[at_barrier], actions[at_barrier], False),
                (arrivals[follows], arrivals[follows] - 1, rows.zero, False),
                (events[at_barrier], opens, rows.zero, stages > 1),
                (messages, packed, rows.end + sent.actions, False),
                (messages[ahead], messages[sent.ahead[ahead]], rows.on_line + sent.ahead[ahead], False),
                (packed[same_way], messages[sent.before[same_way]], rows.room + same_way, False),
                (events[over_line], message[awaited[over_line]], rows.arrival + line, True),
            ],
        )

    def _stage_of(self, actions: Positions) -> Positions:
        found: Positions = np.searchsorted(self._offsets, actions, side="right") - 1
        return found

    def _stuck(self) -> dict[int, int]:
        """For each stage that cannot proceed, the index in its list at which it waits."""
        first = self._program.stages
        missing = self._rounds.missing
        actions = self._actions[missing[missing < first + len(self._actions)] - first]
        stages = self._stage_of(actions)
        return {int(stage): int(actions[stages == stage].min() - self._offsets[stage]) for stage in np.unique(stages)}

    def _last_computations(self, batch: int) -> Positions:
        """The last computation of a mini-batch on each stage that has one."""
        own = [computations_of(codes, batch) for codes in self._program.codes]
        return np.array(
            [first + each[-1] for first, each in zip(self._offsets[:-1], own, strict=True) if len(each)], dtype=np.int64
        )

    def timeline(self, durations: Durations) -> Timeline:
        """When each action starts and ends with these durations."""
        work = self._work(durations)
        times = self._times(work, self._zeros(1))[:, 0]
        counted = times[self._event] - work.values[self._waits.base[self._event], 0]
        size = len(self._kinds)
        starts, ends = (counted + work.values[rows, 0] for rows in (slice(size), slice(size, 2 * size)))
        cut = self._offsets[1:-1]
        return Timeline(self._program, tuple(np.split(starts, cut)), tuple(np.split(ends, cut)))

    def uneven_steps(self, durations: Durations, jitter_s: float) -> Floats:
        """Times of steps in which each computation takes a random time: [steps, `_DRAWS`], seconds.

        Only the steps in the second half of the program count, where the pipeline is full.

        Each computation's time is drawn from a gamma distribution with its duration as mean and `jitter_s` times its
        duration as variance, independently of all others. So a computation of two parts is as uneven as its parts are
        one after the other. Messages and averages always take as long. The draws are the same for the same program.
        """
        completed = self._completed(self._work(durations, jitter_s), repeats=1)
        steady = self._program.steady_batches
        return np.diff(np.stack(completed[(steady - 1) // 2 : steady]), axis=0) if steady > 1 else completed[0]

    def step_times(self, durations: Durations, *, repeats: int | None = None) -> Floats:
        """The step time of each cut that the durations are of, as `timeline(...).step_time_s` gives it.

        Args:
            repeats: how many mini-batches there are where the program is of one, and stages do it again and again. None
                of its messages may be on its way any longer when a stage sends its first one of the next mini-batch.
        """
        completed = self._completed(self._work(durations), repeats=repeats or 1)
        steps: Floats = mean_step(completed.__getitem__, repeats or self._program.steady_batches)
        return steps

    def _completed(self, work: _Work, *, repeats: int) -> list[Floats]:
        """When each mini-batch is completed on all stages, with each of the durations."""
        begins = self._zeros(work.values.shape[1])
        last = np.maximum(self._offsets[1:] - 1, 0)
        completed: list[Floats] = []
        for _ in range(repeats):
            times = self._times(work, begins)
            completed += [self._ends(actions, times, work).max(axis=0) for actions in self._completing]
            begins = self._ends(last, times, work)
        return completed

    def _ends(self, actions: Positions, times: Floats, work: _Work) -> Floats:
        """When actions end.

        Args:
            times: of all events.
        """
        events = self._event[actions]
        return times[events] + work.values[len(self._kinds) + actions] - work.values[self._waits.base[events]]

    def _zeros(self, cuts: int) -> Floats:
        return np.zeros((self._program.stages, cuts))

    def _work(self, durations: Durations, jitter_s: float = 0.0) -> _Work:
        """
        Args:
            jitter_s: as of `uneven_steps`, for durations of one cut; 0: every action takes its duration.
        """
        program, sent, size = self._program, self._sent, len(self._kinds)
        generator = np.random.default_rng(0)
        computing, waiting, *on_lines = _seconds(durations, program)
        cuts = _DRAWS if jitter_s > 0.0 else computing.shape[-1]
        values = np.zeros((Rows(size, len(sent.actions)).zero + 1, cuts))
        for stage, (first, end) in enumerate(zip(self._offsets, self._offsets[1:], strict=False)):
            computed, spent = looked_up(computing, program, stage), looked_up(waiting, program, stage)
            if jitter_s > 0.0:
                computed = generator.gamma(computed / jitter_s, jitter_s, (end - first, cuts))
            spent = spent + computed
            until = np.cumsum(spent, axis=0)
            values[first:end], values[size + first : size + end] = until - spent, until
        if len(sent.actions):
            lines = [looked_up(on_lines[0], program, stage) for stage in range(program.stages)]
            sent.add_to(values, size, durations, np.concatenate(lines))
        return _Work(values, durations.latency_s)

    def _times(self, work: _Work, begins: Floats) -> Floats:
        """When each event starts, where each stage begins at these seconds."""
        return self._rounds.times(begins, self._waits.lags(work.values, work.latency_s))


@dataclass(frozen=True, eq=False)
class _Work:
    """
    Attributes:
        values: [rows, cuts]; seconds, as `Rows` numbers them.
        latency_s: of a message, and of a barrier.
    """

    values: Floats
    latency_s: float


@dataclass(frozen=True)
class Rows:
    """The rows of seconds from which waits are computed: first when each action starts, if its stage waits for nothing;
    then when it ends; then three rows for each message on a line; and one with zeros.

    Attributes:
        size, messages: how many actions and messages there are.
    """

    size: int
    messages: int

    @property
    def end(self) -> int:
        return self.size

    @property
    def on_line(self) -> int:
        """For how long each message takes its line."""
        return 2 * self.size

    @property
    def arrival(self) -> int:
        """How long it is on its way."""
        return self.on_line + self.messages

    @property
    def room(self) -> int:
        """How long after the message before on the same way began, it can be packed."""
        return self.arrival + self.messages

    @property
    def zero(self) -> int:
        return self.room + self.messages


@dataclass(frozen=True, eq=False)
class Waits:
    """What each event waits for: [waits].

    Attributes:
        base: [events]; the row from which the times of each event's list are counted.
        targets, sources: events; the first waits for the second.
        until: the row up to which it waits.
        is_late: whether a latency passes besides.
    """

    base: Positions
    targets: Positions
    sources: Positions
    until: Positions
    is_late: NDArray[np.bool_]

    @classmethod
    def of(cls, base: Positions, waits: Sequence[tuple[Positions, Positions, Positions | int, Any]]) -> Waits:
        """
        Args:
            waits: targets, sources, until and is_late of several kinds of waits, by target in each of them.
        """
        every = [[np.broadcast_to(each, wait[0].shape) for each in wait] for wait in waits]
        targets, sources, until, is_late = (np.concatenate(column) for column in zip(*every, strict=True))
        order = np.argsort(targets, kind="stable")
        return cls(base, targets[order], sources[order], until[order], is_late[order].astype(bool))

    def lags(self, values: Floats, latency_s: float) -> Floats:
        """[waits, cuts]: how long after each source its target may start."""
        found: Floats = values[self.until] - values[self.base[self.sources]]
        found[self.is_late] += latency_s
        return found


@dataclass(frozen=True, eq=False)
class Rounds:
    """
    Attributes:
        order: all events that can be reached, round by round; the beginnings of the stages are the first round.
        ends: the end of each round in `order`.
        waits: for each of several waits of an event, [events]: its number, in the order of `order`, or of no wait.
        sources: where in `order` the events stand that these wait for.
        missing: the events that wait for each other.
    """

    order: Positions
    ends: list[int]
    waits: list[Positions]
    sources: list[Positions]
    missing: Positions

    @classmethod
    def of(cls, stages: int, waits: Waits) -> Rounds:
        size, number = len(waits.base), len(waits.targets)
        left = np.bincount(waits.targets, minlength=size)
        by_source = np.argsort(waits.sources, kind="stable")
        behind = waits.targets[by_source]
        first = np.searchsorted(waits.sources[by_source], np.arange(size + 1))
        order, ready = [], np.arange(stages)
        while len(ready):
            order.append(ready)
            counts = first[ready + 1] - first[ready]
            until = np.cumsum(counts)
            reached = behind[np.repeat(first[ready] - until + counts, counts) + np.arange(until[-1])]
            np.subtract.at(left, reached, 1)
            ready = np.unique(reached[left[reached] == 0])
        found = np.concatenate(order)
        slots = np.zeros(size, dtype=np.int64)
        slots[found] = np.arange(len(found))
        place = np.arange(number) - np.searchsorted(waits.targets, waits.targets)
        of_event, sources = [], []
        for column in range(int(place.max(initial=0)) + 1):
            own = np.flatnonzero(place == column)
            each = np.full(size, number)
            each[waits.targets[own]] = own
            of_event.append(each[found])
            sources.append(np.append(slots[waits.sources], 0)[of_event[-1]])
        ends = np.cumsum([len(events) for events in order]).tolist()
        return cls(found, ends, of_event, sources, np.setdiff1d(np.arange(size), found))

    def times(self, begins: Floats, lags: Floats) -> Floats:
        """When each event starts, [events, cuts].

        Args:
            begins: when each stage begins, [stages, cuts].
            lags: of each wait.
        """
        lags = np.concatenate([lags, np.full((1, lags.shape[1]), -np.inf)])
        own_lags = [lags[each] for each in self.waits]
        times = np.zeros((len(self.order), lags.shape[1]))
        times[: len(begins)] = begins
        for first, end in pairwise(self.ends):
            own = times[first:end]
            own[:] = -np.inf
            for sources, lag in zip(self.sources, own_lags, strict=True):
                done = times.take(sources[first:end], axis=0)
                done += lag[first:end]
                np.maximum(own, done, out=own)
        found = np.empty_like(times)
        found[self.order] = times
        return found


def _seconds(durations: Durations, program: Program) -> Floats:
    """Tables [virtual stages, 2 * NUM_KINDS, cuts] of seconds of each kind of action, the second half of the kinds for
    parts with labels: of computing, of all else, and if messages are on lines, for which they take theirs."""

    def by_stage(seconds: Seconds) -> Floats:
        values = np.asarray(seconds, dtype=float)
        return values.T if values.ndim > 1 else values[:, None]

    cuts = by_stage(durations.forward_s if len(durations.forward_s) else durations.infer_s).shape[-1]
    on_lines = bool(len(durations.up_link_s))
    tables = np.zeros((2 + on_lines, program.stages * program.virtual_stages, 2 * NUM_KINDS, cuts))
    for kind, seconds in durations.computations.items():
        if len(seconds):
            tables[0, :, kind_number(kind)] = by_stage(seconds)
    if len(durations.averages_s):
        tables[1, :, kind_number("U")] = by_stage(durations.averages_s)
    up = durations.up_s, durations.up_link_s
    labels = (durations.labels_up_s, durations.labels_link_s) if len(durations.labels_up_s) else up
    for first, down, (seconds, link) in (
        (0, False, up),
        (NUM_KINDS, False, labels),
        (0, True, (durations.down_s, durations.down_link_s)),
    ):
        below, above = slice(None, -1), slice(1, None)
        sender, receiver = (above, below) if down else (below, above)
        if len(seconds):
            half = by_stage(seconds) / 2
            tables[1, sender, first + kind_number("S", down)] = half
            tables[1, receiver, first + kind_number("R", down)] = half
        if len(link):
            tables[2, sender, first + kind_number("S", down)] = by_stage(link)
    return tables


@dataclass(frozen=True, eq=False)
class Sent:
    """The sends over lines, [messages], in the order of their stages.

    Attributes:
        actions: their numbers.
        edge: the lower virtual stage of each one's edge.
        before: the last one before it that goes the same way, or -1.
        ahead: the last one before it through the same card, or the same link of a device, or on the same line, or -1.
    """

    actions: Positions
    edge: Positions
    before: Positions
    ahead: Positions

    @classmethod
    def of(cls, program: Program, lines: tuple[Through | None, ...]) -> Sent:
        codes = np.concatenate(program.codes)
        down = kinds(codes) == kind_number("S", True)
        edge = np.concatenate([program.virtual(stage) for stage in range(program.stages)]) - down
        # Behind all edges none is named: a send to nowhere is refused before.
        through = np.array([*("" if line is None else line for line in lines), ""])[np.minimum(edge, len(lines))]
        actions = np.flatnonzero((down | (kinds(codes) == kind_number("S"))) & (through != ""))
        edge, down, through = edge[actions], down[actions], through[actions]
        stages = np.array([program.stage_of(virtual) for virtual in range(len(lines) + 1)])
        source, target = stages[edge + down], stages[edge + ~down]
        before = _last(source * program.stages + target)
        shared = _last(np.where(through == "card", source, program.stages + source), through != "itself")
        return cls(actions, edge, before, np.where(through == "itself", before, shared))

    def add_to(self, values: Floats, size: int, durations: Durations, on_lines: Floats) -> None:
        """Fill the rows of messages, behind those of `size` actions.

        Args:
            on_lines: for how long each action takes a line.
        """
        rows = Rows(size, len(self.actions))
        on_line = on_lines[self.actions]
        per_edge = durations.link_latency_s, durations.link_buffer_s
        latency, buffer = (np.array(each)[self.edge, None] for each in per_edge)
        packing = values[rows.end + self.actions] - values[self.actions]
        values[rows.on_line : rows.arrival] = on_line
        values[rows.arrival : rows.room] = on_line + latency
        values[rows.room : rows.zero] = on_line[self.before] - packing - buffer


def _last(ways: Positions, asked: NDArray[np.bool_] | None = None) -> Positions:
    """For each message, the last one before it that goes the same way, or -1; of those that are not asked for -1."""
    found = np.full(len(ways), _NONE)
    order = np.argsort(ways, kind="stable")
    if asked is not None:
        order = order[asked[order]]
    again = ways[order[1:]] == ways[order[:-1]]
    found[order[1:][again]] = order[:-1][again]
    return found
