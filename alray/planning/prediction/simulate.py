"""Simulation: when each action of a program starts and ends, computed without torch.

A stage does its actions in order, one at a time. A receive starts when its message has arrived. A send starts when its
edge has room: an edge holds `in_flight` mini-batches that wait to be received. Every other action starts as soon as the
one before it ends. Any lists of actions can be simulated, not only those of a schedule.

What happens is a graph of events: the beginning of each stage, the actions, the openings of barriers, and the messages
on lines. An event takes some seconds, and starts when the last of what it waits for has ended. A barrier opens when all
stages have arrived. What messages between nodes go through is a line: messages go over it one after another, while both
stages compute on. All that a stage sends to other nodes goes through its network card, whichever neighbour it is for,
and what it sends within its node through the link of its device. The system takes some bytes from a sender before they
are on their way, so a send waits only if more than that is left of those before it.

Events are computed in rounds, for all durations that are simulated at once: those of a round wait for events of the
rounds before it alone.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from alray.core.counting import counted
from alray.core.errors import PlanError
from alray.planning.prediction.program import NUMBERS, Floats, Program, Rows
from alray.planning.prediction.timeline import Timeline, computations, mean_step
from alray.planning.schedules.actions import LABELS, MESSAGES, Action
from alray.planning.schedules.durations import Durations, Through

if TYPE_CHECKING:
    from alray.planning.schedules.durations import Seconds

_DRAWS = 16  # simulations with random times: 64 steps of a pipeline, whose median is off by a sixth of their deviation
_MOST_TOLD = 4  # stages in the error of a deadlock
_HINT = "each receive needs its send, and no two stages may wait for each other"
Positions = NDArray[np.int64]


def simulate(program: Program, durations: Durations, *, in_flight: int) -> Timeline:
    """The timeline of a program.

    Raises PlanError for a program that cannot end: a message that is never sent or never received, barriers that do
    not agree, or stages that wait for each other. The error says which stage waits for what.
    """
    return simulation_of(program, in_flight, durations.lines).timeline(durations)


def unhindered_steps(program: Program, durations: Durations) -> Floats:
    """The step of each cut that the durations are of, if messages take no time and always find room."""
    return simulation_of(program, None).step_times(durations.unhindered)


class Simulation:
    """A program with what waits for what in it, which no durations change.

    Events are numbered: the beginnings of the stages, then all actions, stage by stage, then the openings of barriers,
    then the messages on lines.
    """

    def __init__(self, program: Program, in_flight: int | None, lines: tuple[Through | None, ...] = ()) -> None:
        """
        Args:
            in_flight: mini-batches that an edge holds; None: any number.
            lines: as of `Durations`.

        Raises:
            PlanError: for a program that cannot end.
        """
        self._program, self._rows = program, np.concatenate(program.lists)
        rows, stages = self._rows, program.stages
        self._stage = stage = np.repeat(np.arange(stages), [len(own) for own in program.lists])
        self._actions = actions = stages + np.arange(len(rows))
        self._last = np.arange(stages)  # the last event of each stage
        self._last[stage] = actions
        before = actions - 1  # the event before each action on its stage
        begun, first = np.unique(stage, return_index=True)
        before[first] = begun
        self._updates = np.flatnonzero(rows["kind"] == NUMBERS["U"])
        self._moving = np.flatnonzero(np.isin(rows["kind"], [NUMBERS[kind] for kind in MESSAGES]))
        # The lower virtual stage of the edge of each message, and its place in `Durations.messages`.
        self._edge = rows["stage"] - ((rows["kind"] == NUMBERS["S"]) == rows["down"])
        self._way = np.where(rows["down"], 2, rows["number"] == LABELS)
        sends, receives = _matched(rows)
        crosses = stage[sends] != stage[receives]
        line = np.array([each or "" for each in lines] or [""] * (1 + len(rows)))[self._edge[sends]]
        # What a stage hands over to itself is there, unless it wants it before it has it.
        direct = (line == "") & (crosses | (receives < sends))
        # The first part of a mini-batch waits for room. Later ones, such as the labels, find it there.
        parts = np.flatnonzero(crosses & (rows["number"][sends] == 0))
        edges = 2 * self._edge[sends[parts]] + rows["down"][sends[parts]]
        full, taken = _followers(edges, len(rows) if in_flight is None else in_flight)
        barriers, arriving = _barriers(program), np.flatnonzero(rows["kind"] == NUMBERS["W"])
        openings = stages + len(rows) + np.tile(np.arange(barriers), stages)
        # Messages on lines. A network card, and the link of a device, take those of a stage to all of its neighbours.
        self._sent, received, line = sends[line != ""], receives[line != ""], line[line != ""]
        self._messages = stages + len(rows) + barriers + np.arange(len(self._sent))
        way = stages * stage[self._sent] + stage[received]
        shared = np.where(line == "itself", way, stages * (stages + (line == "card")) + stage[self._sent])
        (behind, ahead), (self._again, same_way) = _followers(shared), _followers(way)
        waits = [  # what waits, for what, and whether a latency passes in between
            (actions, before, False),
            (actions[receives[direct]], actions[sends[direct]], True),
            (actions[sends[parts[full]]], actions[receives[parts[taken]]], False),
            (openings, before[arriving], False),
            (actions[arriving], openings, stages > 1),
            (self._messages, actions[self._sent], False),
            (self._messages[behind], self._messages[ahead], False),
            (actions[received], self._messages, True),
            (actions[self._sent[self._again]], self._messages[same_way], False),
        ]
        targets, sources = (np.concatenate([wait[end] for wait in waits]) for end in (0, 1))
        size = stages + len(rows) + barriers + len(self._messages)
        self._graph = _Graph(stages, size, targets, sources)
        self._late = np.concatenate([np.full(len(target), late) for target, _, late in waits])[self._graph.waits]
        place = np.argsort(self._graph.waits)  # of each of these waits in the graph
        self._arrivals, self._room = np.split(place[len(place) - len(received) - len(same_way) :], [len(received)])
        if len(stuck := np.setdiff1d(actions, self._graph.order)):
            raise self._deadlock(stuck - stages)
        # The last computation of each mini-batch on each stage, by mini-batch, and where each mini-batch begins.
        own = computations(rows)[::-1]
        places, last = np.unique(rows["batch"][own] * np.int64(stages) + stage[own], return_index=True)
        self._completing, self._of_batches = own[last], np.unique(places // stages, return_index=True)[1]

    def _deadlock(self, stuck: Positions) -> PlanError:
        """The error for stages that wait for each other.

        Args:
            stuck: the actions that are never done.
        """
        stages, first = np.unique(self._stage[stuck], return_index=True)
        begins = np.searchsorted(self._stage, stages)
        waits = [
            f"stage {stage} at `{self._program.action(stage, index)}`"
            for stage, index in zip(stages.tolist(), (stuck[first] - begins).tolist(), strict=True)
        ]
        return PlanError(f"deadlock: these wait for ever: {', '.join(waits[:_MOST_TOLD])}", hint=_HINT)

    def timeline(self, durations: Durations) -> Timeline:
        """When each action starts and ends with these durations."""
        spent = self._spent(durations)
        starts = self._graph.starts(np.zeros((self._program.stages, 1)), self._lags(durations, spent))
        ends = starts + spent
        begins = np.searchsorted(self._stage, np.arange(1, self._program.stages))
        starts_s, ends_s = (tuple(np.split(times[self._actions, 0], begins)) for times in (starts, ends))
        return Timeline(self._program, starts_s, ends_s, self._ends_of_batches(ends)[:, 0])

    def uneven_steps(self, durations: Durations, jitter_s: float) -> Floats:
        """Times of steps in which each computation takes a random time: [steps, `_DRAWS`], seconds.

        Only the steps in the second half of the program count, where the pipeline is full.

        Each computation's time is drawn from a gamma distribution with its duration as mean and `jitter_s` times its
        duration as variance, independently of all others. So a computation of two parts is as uneven as its parts are
        one after the other. Messages and averages always take as long. The draws are the same for the same program.
        """
        completed = self._completed(durations, jitter_s=jitter_s)
        steady = self._program.steady_batches
        return np.diff(completed[(steady - 1) // 2 : steady], axis=0) if steady > 1 else completed[0]

    def step_times(self, durations: Durations, *, repeats: int | None = None) -> Floats:
        """The step time of each cut that the durations are of, as `timeline(...).step_time_s` gives it.

        Args:
            repeats: how many mini-batches there are where the program is of one, and stages do it again and again. None
                of its messages may be on its way any longer when a stage sends its first one of the next mini-batch.
        """
        completed = self._completed(durations, repeats=repeats or 1)
        steps: Floats = mean_step(completed, repeats or self._program.steady_batches)
        return steps

    def _completed(self, durations: Durations, *, repeats: int = 1, jitter_s: float = 0.0) -> Floats:
        """[mini-batches, cuts]: when each mini-batch is completed on all stages."""
        spent = self._spent(durations, jitter_s)
        lags = self._lags(durations, spent)
        begins, completed = np.zeros((self._program.stages, spent.shape[1])), []
        for _ in range(repeats):
            ends = self._graph.starts(begins, lags)
            ends += spent
            completed.append(self._ends_of_batches(ends))
            begins = ends[self._last]
        return np.concatenate(completed)

    def _ends_of_batches(self, ends: Floats) -> Floats:
        """[mini-batches, cuts]: when each mini-batch is completed on all stages, from the ends of all events."""
        found: Floats = np.maximum.reduceat(ends[self._actions[self._completing]], self._of_batches, axis=0)
        return found

    def _spent(self, durations: Durations, jitter_s: float = 0.0) -> Floats:
        """[events, cuts]: the seconds that each event takes.

        Args:
            jitter_s: as of `uneven_steps`, for durations of one cut; 0: every action takes its duration.
        """
        every = {NUMBERS[kind]: _by_stage(each) for kind, each in durations.computing.items()}
        parts, cuts = next(iter(every.values())).shape
        computing = np.zeros((len(NUMBERS), parts, cuts))
        for number, own in every.items():
            computing[number] = own
        packing, on_line = np.zeros((2, 3, parts, cuts))
        for way, (seconds, link) in enumerate(durations.messages):
            if len(seconds):
                packing[way, : parts - 1] = _by_stage(seconds) / 2
            if len(link):
                on_line[way, : parts - 1] = _by_stage(link)
        spent = computing[self._rows["kind"], self._rows["stage"]]
        if jitter_s > 0.0:
            spent = np.random.default_rng(0).gamma(spent / jitter_s, jitter_s, (len(spent), _DRAWS))
        spent[self._moving] += packing[self._way[self._moving], self._edge[self._moving]]
        if len(durations.averages_s):
            spent[self._updates] += _by_stage(durations.averages_s)[self._rows["stage"][self._updates]]
        events = np.zeros((self._graph.size, spent.shape[1]))
        events[self._actions] = spent
        events[self._messages] = on_line[self._way[self._sent], self._edge[self._sent]]
        return events

    def _lags(self, durations: Durations, spent: Floats) -> Floats:
        """[waits, cuts]: how long after the beginning of what it waits for each event may start, in the order of the
        graph."""
        lags = spent[self._graph.sources]
        lags[self._late] += durations.latency_s
        if len(self._messages):
            edge, packed = self._edge[self._sent], self._actions[self._sent[self._again]]
            lags[self._arrivals] += np.array(durations.link_latency_s)[edge, None]
            # It is packed meanwhile, and the system takes it when no more than the buffer is left of the one before.
            lags[self._room] -= spent[packed] + np.array(durations.link_buffer_s)[edge[self._again], None]
        return lags


simulation_of = lru_cache(maxsize=2)(Simulation)
"""As `Simulation`, made once for the cuts of a setting that are predicted one after another."""


class _Graph:
    """Events in rounds: those of a round wait for events of the rounds before it alone.

    Attributes:
        size: how many events there are.
        order: all events that can be reached, round by round; the beginnings of the stages are the first round.
        waits: all waits, in the order of the events that wait.
        sources: what is waited for, in this order.
    """

    def __init__(self, stages: int, size: int, targets: Positions, sources: Positions) -> None:
        """
        Args:
            targets, sources: of each wait; the event `targets` waits for the event `sources`.
        """
        self.size = size
        left = np.bincount(targets, minlength=size)
        by_source = np.argsort(sources, kind="stable")
        behind = targets[by_source]
        first = np.searchsorted(sources[by_source], np.arange(size + 1))
        rounds, ready = [], np.arange(stages)
        while len(ready):
            rounds.append(ready)
            counts = first[ready + 1] - first[ready]
            until = np.cumsum(counts)
            reached = behind[np.repeat(first[ready] - until + counts, counts) + np.arange(until[-1])]
            np.subtract.at(left, reached, 1)
            ready = np.unique(reached[left[reached] == 0])
        self.order = np.concatenate(rounds)
        self._ends = np.cumsum([len(events) for events in rounds]).tolist()
        slots = np.zeros(size, dtype=np.int64)
        slots[self.order] = np.arange(len(self.order))
        self.waits = np.argsort(slots[targets], kind="stable")
        self.sources = sources[self.waits]
        self._first = np.searchsorted(slots[targets[self.waits]], np.arange(size + 1))

    def starts(self, begins: Floats, lags: Floats) -> Floats:
        """When each event starts, [events, cuts].

        Args:
            begins: when each stage begins, [stages, cuts].
            lags: of each of `waits`, [waits, cuts].
        """
        starts = np.empty((self.size, lags.shape[1]))
        starts[: len(begins)] = begins
        for begin, end in pairwise(self._ends):
            waits = slice(self._first[begin], self._first[end])
            done = starts.take(self.sources[waits], axis=0)
            done += lags[waits]
            starts[self.order[begin:end]] = np.maximum.reduceat(done, self._first[begin:end] - waits.start, axis=0)
        return starts


def _matched(rows: Rows) -> tuple[Positions, Positions]:
    """Each send, in order, and its receive. Raises PlanError where a message has not one of each."""
    ends = []
    for kind, up in ((NUMBERS["S"], 1), (NUMBERS["R"], 0)):
        own = np.flatnonzero(rows["kind"] == kind)
        there = rows[own]
        goal = there["stage"] + up * (1 - 2 * there["down"].astype(int))
        message = np.stack([there["number"], there["batch"], there["down"], goal])
        order = np.lexsort(message)
        ends.append((own[order], message[:, order]))
    (sends, sent), (receives, received) = ends
    if not np.array_equal(sent, received):
        made, taken = (Counter[tuple[int, ...]](map(tuple, each.T.tolist())) for each in (sent, received))
        wrong = next(each for each in made | taken if made[each] != taken[each])
        number, batch, down, goal = wrong
        raise PlanError(
            f"the message of `{Action(goal, 'R', batch, number, bool(down))}` has {counted(made[wrong], 'send')} and "
            f"{counted(taken[wrong], 'receive')}",
            hint=_HINT,
        )
    order = np.argsort(sends)
    return sends[order], receives[order]


def _barriers(program: Program) -> int:
    """How many barriers there are. Raises PlanError where stages have different ones."""
    of_stages = [rows[rows["kind"] == NUMBERS["W"]][["batch", "number"]].tolist() for rows in program.lists]
    for stage, own in enumerate(of_stages):
        if own != of_stages[0]:
            raise PlanError(f"stages 0 and {stage} have different barriers", hint="give all stages the same W actions")
    return len(of_stages[0])


def _followers(groups: Positions, distance: int = 1) -> tuple[Positions, Positions]:
    """The positions of what has so many others of its group before it, and of the one that is so far before it."""
    order = np.argsort(groups, kind="stable")
    later, earlier = order[distance:], order[:-distance]
    alike = groups[later] == groups[earlier]
    return later[alike], earlier[alike]


def _by_stage(seconds: Seconds) -> Floats:
    """[virtual stages, or pairs of them, cuts]."""
    values = np.asarray(seconds, dtype=float)
    return values.T if values.ndim > 1 else values[:, None]
