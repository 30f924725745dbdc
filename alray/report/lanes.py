"""Lanes: what each stage did at which time, and the window of time of them that a chart shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from alray.core.errors import PlanError
from alray.planning.prediction.timeline import TimedAction
from alray.planning.schedules.actions import COMPUTE, Action, parse

SEND_WAIT, RECEIVE_WAIT = "send_wait", "receive_wait"
WAITS = (SEND_WAIT, RECEIVE_WAIT)
DATA = "data"
"""`data 7`: stage 0 reads mini-batch 7 and prepares its samples."""
DISTURBANCE = "disturbance"
"""A replica computes for longer, on purpose (`replicas.disturbance`)."""

_TRAINING = ("F", "C", "L", "B", "I", "G", "U")  # kinds of actions that train


@dataclass(frozen=True)
class Lane:
    """The actions of one stage of one replica, by start time. All lanes of a list share one clock, in seconds.

    `TimedAction.action` is the printed form of an action (`2F0`), or another name that a stage measures under:
    `data 0`, `send_wait`, `receive_wait`, `all_reduce 0`.
    """

    stage: int
    replica: int
    bars: tuple[TimedAction, ...]

    @property
    def stretches(self) -> list[tuple[float, float]]:
        """From when to when the stage was traced without a gap: start and end of each run of mini-batches.

        Within them, the stage waits where there is no bar. Outside, nothing is known.
        """
        found: list[tuple[float, float]] = []
        start, latest = None, None  # of the stretch that continues: its start, and the last mini-batch in it
        waiting = None  # when the waits that lead to the next mini-batch began
        end = 0.0
        for bar in self.bars:
            waiting = bar.start_s if waiting is None else waiting
            batch = batch_of(bar)
            if batch is not None:
                if start is not None and latest is not None and batch > latest + 1:
                    found.append((start, end))
                    start = None
                start = waiting if start is None else start
                latest = batch if latest is None else max(latest, batch)
                waiting = None
            if waiting is None:
                end = bar.end_s
        if start is not None:
            found.append((start, max(end, self.bars[-1].end_s)))
        return found

    def begins(self) -> dict[int, float]:
        """When the first work for each mini-batch began."""
        found: dict[int, float] = {}
        for bar in self.bars:
            batch = batch_of(bar)
            if batch is not None:
                found.setdefault(batch, bar.start_s)
        return found


class View(NamedTuple):
    """The part that a chart shows: the same window of time of every lane."""

    lanes: Sequence[Lane]
    start_s: float
    end_s: float

    def inside(self, lane: Lane) -> Iterator[TimedAction]:
        """The work and the messages of a lane that lie in the window, if only in part."""
        for bar in lane.bars:
            if bar.action not in WAITS and bar.end_s > bar.start_s and self._clip(bar.start_s, bar.end_s):
                yield bar

    def traced(self, lane: Lane) -> list[tuple[float, float]]:
        """The parts of the window in which it is known what the stage did, in seconds from the start of the window."""
        parts = [self._clip(*stretch) for stretch in lane.stretches]
        return [(part[0] - self.start_s, part[1] - self.start_s) for part in parts if part]

    def clipped(self, bar: TimedAction) -> tuple[float, float]:
        """Start and end of the part of a bar that lies in the window, in seconds from the start of the window."""
        start, end = max(bar.start_s, self.start_s), min(bar.end_s, self.end_s)
        return start - self.start_s, end - self.start_s

    def _clip(self, start_s: float, end_s: float) -> tuple[float, float] | None:
        start, end = max(start_s, self.start_s), min(end_s, self.end_s)
        return (start, end) if end > start else None


def lanes_of(bars: Iterable[TimedAction], stages: int) -> list[Lane]:
    """The lanes of a simulation that begins at 0 s, with a wait in each gap, named after what the stage waits for."""
    own: list[list[TimedAction]] = [[] for _ in range(stages)]
    ends = [0.0] * stages
    for bar in bars:
        lane, at = own[bar.stage], ends[bar.stage]
        if bar.start_s - at > 1e-9:
            # At a barrier a stage waits for messages of the others. Records count that as receive wait too.
            action = action_of(bar)
            sends = action is not None and action.kind == "S"
            lane.append(TimedAction(bar.stage, SEND_WAIT if sends else RECEIVE_WAIT, at, bar.start_s))
        if bar.end_s > bar.start_s:
            lane.append(bar)
        ends[bar.stage] = max(at, bar.end_s)
    return [Lane(stage, 0, tuple(bars_of_stage)) for stage, bars_of_stage in enumerate(own)]


def whole(lanes: Sequence[Lane]) -> View:
    """The view of everything that the lanes hold."""
    bars = [bar for lane in lanes for bar in lane.bars]
    if not bars:
        return View(lanes, 0.0, 0.0)
    return View(lanes, min(bar.start_s for bar in bars), max(bar.end_s for bar in bars))


def steady(lanes: Sequence[Lane], first: int, num_batches: int) -> tuple[View, range]:
    """A window of time after a start, the same for all lanes, and the mini-batches that stage 0 did in it.

    The window begins with the first mini-batch that stage 0 begins when no stage is at an earlier one than `first`. It
    ends where stage 0 begins its `num_batches`-th mini-batch from there; in a shorter trace, where the trace ends.

    Args:
        first: the first mini-batch after warm-up.
    """
    begins = lanes[0].begins()
    all_past = max((lane.begins().get(first, lane.bars[-1].end_s) for lane in lanes), default=0.0)
    chosen = [batch for batch, start_s in sorted(begins.items()) if start_s >= all_past] or sorted(begins)
    end = chosen[0]
    while end in begins and end - chosen[0] < num_batches:
        end += 1
    start_s = begins[chosen[0]]
    traced_until = [min((last for _, last in lane.stretches if last > start_s), default=start_s) for lane in lanes]
    return View(lanes, start_s, begins[end] if end in begins else max(traced_until)), range(chosen[0], end)


def action_of(bar: TimedAction) -> Action | None:
    """The action of a bar; None for anything that a stage measured under another name."""
    try:
        return parse(bar.action)
    except PlanError:
        return None


def batch_of(bar: TimedAction) -> int | None:
    """The mini-batch that a bar is work for, counted from 0; None for waits and evaluations."""
    action = action_of(bar)
    if action is not None:
        return action.batch if action.kind in _TRAINING else None
    name, _, number = bar.action.partition(" ")
    return int(number) if name == DATA else None


def category(bar: TimedAction) -> str:
    """`compute`, `message`, `data`, `disturbance`, or the name of a wait: what a bar counts as."""
    action = action_of(bar)
    if action is None:
        return bar.action.partition(" ")[0]
    return "compute" if action.kind in COMPUTE else "message"
