"""Simulation: when each action of a program starts and ends, computed without torch.

A stage does its actions in order, one at a time. A receive starts when its message has arrived. A send starts when its
edge has room: an edge holds `in_flight` mini-batches that wait to be received. A barrier opens when every stage has
reached it. Every other action starts as soon as the one before it ends. Any lists of actions can be simulated, not only
those of a schedule.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from alray.plan.dependencies import FIRST_BARRIER, NOTHING, Dependencies, deadlock, find_dependencies
from alray.plan.program import NUM_SORTS, Program, chunks, is_labels, sort_of, sorts
from alray.plan.timeline import Timeline
from alray.schedules.actions import Action
from alray.schedules.durations import Durations

Floats = NDArray[np.float64]


def simulate(program: Program | Sequence[Sequence[Action]], durations: Durations, *, in_flight: int) -> Timeline:
    """The timeline of a program.

    Raises PlanError for a program that cannot end: a message that is never sent or never received, barriers that do
    not agree, or stages that wait for each other. The error says which stage waits for what.
    """
    if not isinstance(program, Program):
        program = Program.of(program)
    spent = _spent(program, durations)
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


def _spent(program: Program, durations: Durations) -> list[Floats]:
    """For each stage, the seconds that it is busy with each of its actions."""
    table = np.zeros((program.stages * program.virtual_stages, NUM_SORTS))
    for kind, seconds in durations.computations.items():
        if len(seconds):
            table[:, sort_of(kind)] = seconds
    for down, seconds in ((False, durations.up_s), (True, durations.down_s)):
        if len(seconds):
            half = np.array(seconds, dtype=float) / 2
            table[:-1, sort_of("R" if down else "S", down)] = half
            table[1:, sort_of("S" if down else "R", down)] = half
    spent = [table[chunks(codes) * program.stages + stage, sorts(codes)] for stage, codes in enumerate(program.codes)]
    if len(durations.labels_up_s):
        half = np.array([0.0, *durations.labels_up_s, 0.0]) / 2
        for stage, codes in enumerate(program.codes):
            spent[stage][is_labels(codes, "R")] = half[stage]
            spent[stage][is_labels(codes, "S")] = half[stage + 1]
    return spent


@dataclass(frozen=True, eq=False)
class _Events:
    """The actions that wait for another stage, and the first action of each stage. All other times follow by addition.

    Events are numbered consecutively over all stages; those of stage s are first[s] to first[s + 1] - 1. An event
    starts `gap` after the previous event on its stage and `lag` after event `on`, whichever is later. `on` may be
    NOTHING or a barrier.
    """

    places: NDArray[np.int64]  # the number of the event's action, counted over all stages
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
    # An awaited action that waits for nothing itself is no event: count from the event before it.
    source = np.searchsorted(places, waited[remote], side="right") - 1
    event_on = waited.copy()
    event_on[remote] = source
    lag = np.zeros(len(places))
    lag[remote] = all_before[waited[remote]] - all_before[places[source]] + np.concatenate(spent)[waited[remote]]
    receives = np.isin(sorts(np.concatenate(program.codes)[places]), [sort_of("R"), sort_of("R", True)])
    lag[receives] += latency_s
    return _Events(places, first.tolist(), gap, event_on, lag, latency_s)


def _run(events: _Events) -> tuple[list[float], dict[int, int]]:
    """The start of every event, and for each stage that cannot go on the event at which it waits.

    Each stage goes on until it needs the start of an event that is not known yet. The stage that finds this start wakes
    it. These are plain loops because each start depends on one that was just found: numpy could not do several at once.
    """
    gap, on, lag = events.gap.tolist(), events.on.tolist(), events.lag.tolist()
    first = events.first
    stages = len(first) - 1
    times = [-1.0] * first[-1]
    next_event = first[:-1]
    sleepers: list[list[int]] = [[] for _ in range(stages)]  # stages that wait for this one
    opened: list[float] = []  # when each barrier opened; every stage reaches the next one before any stage passes it
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
        if event > next_event[stage]:  # otherwise stages that wait for each other would wake each other for ever
            next_event[stage] = event
            ready.extend(sleepers[stage])
            sleepers[stage].clear()
    return times, {stage: event for stage, event in enumerate(next_event) if event < first[stage + 1]}
