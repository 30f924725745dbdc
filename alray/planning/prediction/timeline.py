"""A timeline: when each action of a program starts and ends, and the figures that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alray.planning.prediction.program import NUMBERS, Floats, Program, Rows
from alray.planning.schedules.actions import COMPUTE, KINDS


class TimedAction(NamedTuple):
    """One action with its times; `action` is its printed form, such as `2F0`."""

    stage: int
    action: str
    start_s: float
    end_s: float


@dataclass(frozen=True, eq=False)
class Timeline:
    """When each action of a program starts and ends, in seconds from the start of the program.

    `starts_s[stage][i]` and `ends_s[stage][i]` are those of the i-th action of a stage. A send or receive lasts for as
    long as the stage is busy with it, not until the message has arrived. The gap before an action is the time the stage
    waits. `completed_s[k]` is when the last computation of mini-batch k ends on any stage.
    """

    program: Program
    starts_s: tuple[Floats, ...]
    ends_s: tuple[Floats, ...]
    completed_s: Floats

    @property
    def duration_s(self) -> float:
        """When the last action of all stages ends."""
        return max(float(ends[-1]) for ends in self.ends_s if len(ends))

    @property
    def step_time_s(self) -> float:
        """Mean seconds from one completed mini-batch to the next, in the second half of the program, where the pipeline
        is full."""
        return float(mean_step(self.completed_s, self.program.steady_batches))

    def crowding(self, others: int, replicas: int = 1) -> list[float]:
        """How many other stages compute while a stage computes, as a share of `others`: one value in 0..1 per stage.

        A value is the mean, over the time in which the stage computes, of the number of other stages that compute at
        the same time, divided by `others`. More than `others` count as `others`. Only the middle half of the program
        counts, where the pipeline neither fills nor drains.

        Args:
            others: the number of other stages with which a value is 1.
            replicas: that do the same at the same time, since they wait for each other in every step.
        """
        if others == 0:
            return [0.0] * self.program.stages
        completed = self.completed_s
        quarter = (len(completed) - 1) // 4
        # Computations are clipped to the middle half; those outside of it then take no time.
        first_s, last_s = completed[quarter] if len(completed) > 1 else 0.0, completed[-1 - quarter]
        begins, finishes = [], []
        for rows, starts, ends in zip(self.program.lists, self.starts_s, self.ends_s, strict=True):
            computes = computations(rows)
            begins.append(np.clip(starts[computes], first_s, last_s))
            finishes.append(np.clip(ends[computes], first_s, last_s))
        # One more stage computes after each beginning, one less after each end. In order of time the running sum is the
        # number of stages that compute between one such moment and the next.
        times = np.concatenate([*begins, *finishes])
        order = np.argsort(times)
        computing = np.cumsum(np.repeat([1, -1], len(times) // 2)[order])[:-1]
        overlap = np.minimum(np.maximum(replicas * computing - 1, 0), others) / others
        times = times[order]
        until = np.concatenate([[0.0], np.cumsum(overlap * np.diff(times))])  # integral of `overlap` up to each time
        # The integral over one computation is the difference between the integrals up to its end and its beginning.
        shares = []
        for began, finished in zip(begins, finishes, strict=True):
            crowded = np.sum(np.interp(finished, times, until) - np.interp(began, times, until))
            total = np.sum(finished - began)
            shares.append(float(crowded / total) if total > 0 else 0.0)
        return shares

    def bars(self) -> list[TimedAction]:
        """The timed actions, stage by stage, each stage in order."""
        return [
            TimedAction(stage, str(action), float(start), float(end))
            for stage, times in enumerate(zip(self.starts_s, self.ends_s, strict=True))
            for action, start, end in zip(self.program.actions(stage), *times, strict=True)
        ]


def computations(rows: Rows) -> NDArray[np.int64]:
    """The indices of all computations."""
    return np.flatnonzero(_COMPUTES[rows["kind"]])


def mean_step(completed_s: Floats, num_batches: int) -> Any:
    """`Timeline.step_time_s`, from when each mini-batch is completed: one time, or an array for several simulations."""
    if num_batches == 1:
        return completed_s[0]
    middle = (num_batches - 1) // 2
    return (completed_s[num_batches - 1] - completed_s[middle]) / (num_batches - 1 - middle)


_COMPUTES = np.isin(np.arange(len(KINDS)), [NUMBERS[kind] for kind in COMPUTE])
"""Whether an action of this kind number computes: looked up, because `np.isin` takes much longer."""
