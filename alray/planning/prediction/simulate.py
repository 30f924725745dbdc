"""Simulation: when each action of a program starts and ends, computed without torch.

A stage does its actions in order, one at a time. A receive starts when its message has arrived. A send starts when its
edge has room: an edge holds `in_flight` mini-batches that wait to be received. Between nodes, a send also waits until
little enough of the messages before it is still on the link, and its message until the stage's network card has sent
those before (`alray.planning.prediction.links`). A barrier opens when
every stage has reached it. Every other action starts as soon as the one before it ends. Any lists of actions can be
simulated, not only those of a schedule.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alray.planning.prediction.dependencies import FIRST_BARRIER, NOTHING, deadlock, find_dependencies
from alray.planning.prediction.links import LinkEvents, is_on_link, seconds_on_links
from alray.planning.prediction.program import NUM_KINDS, Floats, Program, kind_number, kinds, looked_up
from alray.planning.prediction.timeline import Timeline, computations_of, mean_step
from alray.planning.schedules.actions import Action
from alray.planning.schedules.durations import Durations


def simulate(program: Program | Sequence[Sequence[Action]], durations: Durations, *, in_flight: int) -> Timeline:
    """The timeline of a program.

    Raises PlanError for a program that cannot end: a message that is never sent or never received, barriers that do
    not agree, or stages that wait for each other. The error says which stage waits for what.
    """
    if not isinstance(program, Program):
        program = Program.of(program)
    work = _work(program, _seconds(durations, program))
    events = _events(program, work, seconds_on_links([durations], program), durations, in_flight)
    times = np.array(_times(events, max))
    starts = [_starts(events, work, times, stage) for stage in range(program.stages)]
    ends = [start + seconds for start, seconds in zip(starts, work.spent, strict=True)]
    return Timeline(program, tuple(starts), tuple(ends))


def step_times(program: Program, every: Sequence[Durations], *, in_flight: int) -> Floats:
    """The step time of one program with each of these durations, as `simulate(...).step_time_s` gives it.

    What waits for what does not depend on durations, so all of them are simulated at once. Latencies and
    buffers are those of the first.
    """
    work = _work(program, np.stack([_seconds(durations, program) for durations in every], axis=-1))
    events = _events(program, work, seconds_on_links(every, program), every[0], in_flight)
    times = np.array(_times(events, np.maximum))

    def completed(batch: int) -> Floats:
        ends = []
        for stage, codes in enumerate(program.codes):
            own = computations_of(codes, batch)
            if len(own):
                ends.append((_starts(events, work, times, stage, own) + work.spent[stage][own]).max(axis=0))
        latest: Floats = np.maximum.reduce(ends)
        return latest

    steps: Floats = mean_step(completed, program.steady_batches)
    return steps


@dataclass(frozen=True, eq=False)
class _Work:
    """For each stage, the seconds that it is busy with each of its actions, and with all actions before it.

    Arrays of shape [actions], or [actions, n] for n durations at once.
    """

    spent: list[Floats]
    before: list[Floats]


def _work(program: Program, seconds: Floats) -> _Work:
    """
    Args:
        seconds: as `_seconds` gives them, with one more dimension for several durations at once.
    """
    spent = [looked_up(seconds, program, stage) for stage in range(program.stages)]
    return _Work(spent, [np.cumsum(own, axis=0) - own for own in spent])


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
class _Events:
    """The actions that wait for another stage, and the first action of each stage. All other times follow by addition.

    Events are numbered consecutively over all stages; those of stage s are first[s] to first[s + 1] - 1. An event
    starts `gap` after the previous event on its stage and `lag` after event `on`, whichever is later. `on` may be
    NOTHING or a barrier.
    """

    positions: NDArray[np.int64]  # the number of the event's action, counted over all stages
    offsets: NDArray[np.int64]  # the number of each stage's first action
    first: list[int]
    order: list[int]  # each event comes after those it waits for
    gap: Floats
    on: list[int]
    lag: Floats
    latency_s: float
    links: LinkEvents | None  # None where no message goes from node to node


def _events(program: Program, work: _Work, on_links: Floats | None, durations: Durations, in_flight: int) -> _Events:
    """
    Args:
        on_links: of `seconds_on_links`.
        durations: have the latencies and buffers.

    Raises:
        PlanError: for a program that cannot end.
    """
    dependencies = find_dependencies(program, in_flight)
    on, offsets = dependencies.on, dependencies.offsets
    is_event = on != NOTHING
    if on_links is not None:
        is_event |= np.isin(kinds(np.concatenate(program.codes)), [kind_number("S"), kind_number("S", True)])
    is_event[offsets[:-1][np.diff(offsets) > 0]] = True
    positions = np.flatnonzero(is_event)
    first = np.searchsorted(positions, offsets)
    all_before = np.concatenate(work.before)
    gap = np.diff(all_before[positions], axis=0, prepend=0.0 * all_before[:1])
    gap[first[:-1][np.diff(first) > 0]] = 0.0
    waited = on[positions]
    remote = waited >= 0
    # An awaited action that waits for nothing itself is no event: count from the event before it.
    source = np.searchsorted(positions, waited[remote], side="right") - 1
    event_on = waited.copy()
    event_on[remote] = source
    lag = np.zeros_like(gap)
    spent = np.concatenate(work.spent)
    lag[remote] = all_before[waited[remote]] - all_before[positions[source]] + spent[waited[remote]]
    receives = np.isin(kinds(np.concatenate(program.codes)[positions]), [kind_number("R"), kind_number("R", True)])
    lag[receives] += durations.latency_s
    links = None
    if on_links is not None:
        links = LinkEvents.of(program, positions, on_links[positions], spent[positions], durations)
        by_link = receives & is_on_link(on_links)[waited]
        lag[by_link] += links.after(by_link, spent[waited[by_link]])
    order, stuck = _order(first.tolist(), event_on.tolist())
    if stuck:
        raise deadlock(
            program, {stage: int(positions[event] - offsets[stage]) for stage, event in stuck.items()}, in_flight
        )
    return _Events(positions, offsets, first.tolist(), order, gap, event_on.tolist(), lag, durations.latency_s, links)


def _order(first: list[int], on: list[int]) -> tuple[list[int], dict[int, int]]:
    """An order in which every event comes after those it waits for, and for each stage that cannot proceed the event at
    which it waits.

    Each stage continues until it needs an event that has not come yet. The stage that comes to this event wakes it.
    """
    stages = len(first) - 1
    order: list[int] = []
    known = [False] * first[-1]
    next_event = first[:-1]
    sleepers: list[list[int]] = [[] for _ in range(stages)]  # stages that wait for this one
    opened, arrived = 0, 0  # barriers; every stage reaches the next one before any stage passes it
    everyone = list(range(stages))
    ready = deque(everyone)
    while ready:
        stage = ready.popleft()
        event, end = next_event[stage], first[stage + 1]
        while event < end:
            needed = on[event]
            if needed >= 0:
                if not known[needed]:
                    sleepers[bisect_right(first, needed) - 1].append(stage)
                    break
            elif needed <= FIRST_BARRIER and FIRST_BARRIER - needed == opened:
                arrived += 1
                if arrived < stages:
                    break
                opened, arrived = opened + 1, 0
                ready.extend(everyone[:stage] + everyone[stage + 1 :])
            known[event] = True
            order.append(event)
            event += 1
        if event > next_event[stage]:  # otherwise stages that wait for each other would wake each other for ever
            next_event[stage] = event
            ready.extend(sleepers[stage])
            sleepers[stage].clear()
    return order, {stage: event for stage, event in enumerate(next_event) if event < first[stage + 1]}


def _times(events: _Events, later: Callable[[Any, Any], Any]) -> list[Any]:
    """The start of every event: numbers with `max` as `later`, or arrays for several durations with `np.maximum`.

    These are plain loops because each start depends on one that was just found: numpy could not do several at once.
    """
    gap, on = events.gap.tolist() if later is max else list(events.gap), events.on
    lag = events.lag.tolist() if later is max else list(events.lag)
    begins = set(events.first)
    times: list[Any] = [0.0] * len(on)
    opened: list[Any] = []
    at_barrier: dict[int, list[int]] = {}
    for event, needed in enumerate(on):
        if needed <= FIRST_BARRIER:
            at_barrier.setdefault(FIRST_BARRIER - needed, []).append(event)

    links = events.links
    left_link: dict[int, Any] = {}  # when the message of an event has

    def free(event: int) -> Any:
        """When the stage itself is ready for the event."""
        return gap[event] if event in begins else times[event - 1] + gap[event]

    for event in events.order:
        needed = on[event]
        if needed >= 0:
            sent = times[needed] if links is None or not links.over[needed] else left_link[needed]
            times[event] = later(free(event), sent + lag[event])
        elif needed <= FIRST_BARRIER:
            barrier = FIRST_BARRIER - needed
            if barrier == len(opened):
                members = at_barrier[barrier]
                opened.append(reduce(later, map(free, members)) + (events.latency_s if len(members) > 1 else 0.0))
            times[event] = opened[barrier]
        else:
            times[event] = free(event)
        if links is not None and links.over[event]:
            before_s = left_link[links.before[event]] if links.before[event] >= 0 else 0.0
            card_s = left_link[links.ahead[event]] if links.ahead[event] >= 0 else 0.0
            times[event] = later(times[event], before_s - links.packing[event] - links.buffer_s[event])
            left_link[event] = later(times[event] + links.packing[event], card_s) + links.seconds[event]
    return times


def _starts(
    events: _Events, work: _Work, times: Floats, stage: int, actions: NDArray[np.int64] | None = None
) -> Floats:
    """When these actions of a stage start; None: all of them."""
    first, end = events.first[stage], events.first[stage + 1]
    positions = events.positions[first:end] - events.offsets[stage]
    own = work.before[stage]
    actions = np.arange(len(own)) if actions is None else actions
    event = np.searchsorted(positions, actions, side="right") - 1
    starts: Floats = times[first:end][event] + (own[actions] - own[positions][event])
    return starts
