"""Simulation: when every action of a program starts and ends, without torch.

A stage does its actions in order, one at a time. A receive starts when its message has arrived, a send when
there is room on its edge (at most `in_flight` messages wait there), a barrier when every stage has come to
it; anything else at once. Any list of actions can be simulated, whether or not a schedule made it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alray.plan.actions import Action, ActionKind
from alray.plan.dependencies import FIRST_BARRIER, NOTHING, Dependencies, deadlock, find_dependencies
from alray.plan.program import NUM_SORTS, Program, chunks, sort_of, sorts
from alray.plan.timeline import Timeline

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Durations:
    """Seconds each action takes: one value a stage for computations, one a pair of neighbours for messages.

    With virtual stages, one value a virtual stage and one a pair of neighbouring virtual stages. With micro-batches,
    the seconds of one micro-batch, except for the update.
    Of a message's seconds (packing, moving, unpacking) the sender spends half and the receiver half;
    `latency_s` passes between the two, while neither is busy with it, and from the last stage's arrival at a
    barrier to its opening.
    """

    forward_s: Sequence[float]
    backward_s: Sequence[float]
    update_s: Sequence[float]
    infer_s: Sequence[float] = ()
    route_s: Sequence[float] = ()
    up_s: Sequence[float] = ()  # message from stage i to i + 1
    down_s: Sequence[float] = ()  # message from stage i + 1 to i
    latency_s: float = 0.0
    input_gradient_s: Sequence[float] = ()
    weight_gradient_s: Sequence[float] = ()

    def times(self, factors: Sequence[float]) -> Durations:
        """The same with the computations of each (virtual) stage so many times as long; messages are as before."""
        computations = ("forward_s", "backward_s", "update_s", "infer_s", "route_s", "input_gradient_s")
        changed: dict[str, Any] = {}
        for name in (*computations, "weight_gradient_s"):
            seconds = getattr(self, name)
            changed[name] = [own * factor for own, factor in zip(seconds, factors, strict=True)] if seconds else []
        return replace(self, **changed)

    def table(self, stages: int) -> Floats:
        """[virtual stages, kinds and directions]: the seconds a stage is busy with each."""
        table = np.zeros((stages, NUM_SORTS))
        computations: dict[ActionKind, Sequence[float]] = {
            "F": self.forward_s,
            "B": self.backward_s,
            "U": self.update_s,
            "E": self.infer_s,
            "D": self.route_s,
            "I": self.input_gradient_s,
            "G": self.weight_gradient_s,
        }
        for kind, seconds in computations.items():
            if len(seconds):
                table[:, sort_of(kind)] = seconds
        for down, seconds in ((False, self.up_s), (True, self.down_s)):
            if len(seconds):
                half = np.array(seconds, dtype=float) / 2
                table[:-1, sort_of("R" if down else "S", down)] = half
                table[1:, sort_of("S" if down else "R", down)] = half
        return table


def simulate(program: Program | Sequence[Sequence[Action]], durations: Durations, *, in_flight: int) -> Timeline:
    """The timeline of a program.

    Raises PlanError for a program that cannot come to its end: a message that is never sent or never
    received, barriers that do not agree, or stages that wait for each other; the error says who waits for
    what.
    """
    if not isinstance(program, Program):
        program = Program.of(program)
    table = durations.table(program.stages * program.virtual_stages)
    spent = [table[chunks(codes) * program.stages + stage, sorts(codes)] for stage, codes in enumerate(program.codes)]
    before = [np.cumsum(seconds) - seconds for seconds in spent]  # the stage's own work before each action
    dependencies = find_dependencies(program, in_flight)
    events = _events(program, dependencies, spent, before, durations.latency_s)
    times, stuck = _run(events)
    if stuck:
        places = {stage: int(events.places[event] - dependencies.offsets[stage]) for stage, event in stuck.items()}
        raise deadlock(program, places, in_flight)
    starts = []
    for stage, own in enumerate(before):
        first, end = events.first[stage], events.first[stage + 1]
        places = events.places[first:end] - dependencies.offsets[stage]
        event = np.searchsorted(places, np.arange(len(own)), side="right") - 1
        starts.append(np.array(times[first:end])[event] + (own - own[places][event]))
    ends = [start + seconds for start, seconds in zip(starts, spent, strict=True)]
    return Timeline(program, tuple(starts), tuple(ends))


@dataclass(frozen=True, eq=False)
class _Events:
    """The actions that wait for another stage, and the first of each stage; all others follow by addition.

    Events are numbered through; those of stage s are first[s] to first[s + 1] - 1. An event starts `gap`
    after the event before it on its stage and `lag` after event `on`, whichever is later; `on` may be NOTHING
    or a barrier.
    """

    places: NDArray[np.int64]  # the event's action, numbered through
    first: list[int]
    gap: Floats
    on: NDArray[np.int64]
    lag: Floats
    latency_s: float


def _events(
    program: Program, dependencies: Dependencies, spent: list[Floats], before: list[Floats], latency_s: float
) -> _Events:
    on, offsets = dependencies.on, dependencies.offsets
    is_event = on != NOTHING
    is_event[offsets[:-1][np.diff(offsets) > 0]] = True
    places = np.flatnonzero(is_event)
    first = np.searchsorted(places, offsets)
    all_before = np.concatenate(before)
    gap = np.diff(all_before[places], prepend=0.0)
    gap[first[:-1][np.diff(first) > 0]] = 0.0
    waited = on[places]
    remote = waited >= 0
    # The awaited action is no event where it waits for nothing itself: then count from the event before it.
    source = np.searchsorted(places, waited[remote], side="right") - 1
    event_on = waited.copy()
    event_on[remote] = source
    lag = np.zeros(len(places))
    lag[remote] = all_before[waited[remote]] - all_before[places[source]] + np.concatenate(spent)[waited[remote]]
    receives = np.isin(sorts(np.concatenate(program.codes)[places]), [sort_of("R"), sort_of("R", True)])
    lag[receives] += latency_s
    return _Events(places, first.tolist(), gap, event_on, lag, latency_s)


def _run(events: _Events) -> tuple[list[float], dict[int, int]]:
    """The start of every event, and the event each stage is stuck at (empty where all came to their end).

    Each stage goes on until it needs the start of an event that is not known yet; the stage that makes it
    known wakes it. Plain loops: what is known next hangs on what was just found, so there is nothing to do
    many at a time.
    """
    gap, on, lag = events.gap.tolist(), events.on.tolist(), events.lag.tolist()
    first = events.first
    stages = len(first) - 1
    times = [-1.0] * first[-1]
    next_event = first[:-1]
    sleepers: list[list[int]] = [[] for _ in range(stages)]  # stages that wait for this one
    opened: list[float] = []  # when each barrier opened; all stages come to the next one before any passes it
    arrived, latest = 0, 0.0  # at the barrier that opens next
    everyone = list(range(stages))
    ready = deque(everyone)
    while ready:
        stage = ready.popleft()
        event, end = next_event[stage], first[stage + 1]
        time = times[event - 1] if event > first[stage] else 0.0
        while event < end:
            start = time + gap[event]
            needed = on[event]
            if needed >= 0:
                known = times[needed]
                if known < 0.0:
                    sleepers[bisect_right(first, needed) - 1].append(stage)
                    break
                known += lag[event]
                if known > start:
                    start = known
            elif needed <= FIRST_BARRIER:
                barrier = FIRST_BARRIER - needed
                if barrier == len(opened):
                    arrived += 1
                    if start > latest:
                        latest = start
                    if arrived < stages:
                        break
                    opened.append(latest + events.latency_s if stages > 1 else latest)
                    arrived = 0
                    ready.extend(everyone[:stage] + everyone[stage + 1 :])
                start = opened[barrier]
            times[event] = time = start
            event += 1
        if event > next_event[stage]:  # or stages that wait for each other would wake each other for ever
            next_event[stage] = event
            ready.extend(sleepers[stage])
            sleepers[stage].clear()
    return times, {stage: event for stage, event in enumerate(next_event) if event < first[stage + 1]}
