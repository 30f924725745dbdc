"""A program as arrays: the action lists of all stages, with a row for each action.

A thousand stages with a thousand mini-batches have more than five million actions. That is too many objects; the
simulation reads these arrays instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from alray.planning.schedules.actions import KINDS, Action, ActionKind
from alray.planning.schedules.schedule import Schedule

_KINDS = tuple(KINDS)
NUMBERS: dict[ActionKind, int] = {kind: number for number, kind in enumerate(_KINDS)}
"""The number of each kind of action in the field `kind` of rows."""
ROW = np.dtype([("stage", "i4"), ("kind", "i1"), ("batch", "i4"), ("number", "i4"), ("down", "?")])
"""A row: the fields of `Action`."""

Rows = NDArray[np.void]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Program:
    """The action lists of all stages; `lists[stage]` is an array of `ROW`."""

    lists: tuple[Rows, ...]

    @classmethod
    def of(cls, lists: Iterable[Sequence[Action]]) -> Program:
        """The program of these lists, one for each stage."""
        return cls(tuple(map(_rows, lists)))

    @classmethod
    def of_schedule(
        cls,
        schedule: Schedule,
        stages: int,
        num_batches: int,
        *,
        micro_batches: int = 1,
        virtual_stages: int = 1,
    ) -> Program:
        """The actions of a schedule for mini-batches 0 to `num_batches` - 1."""
        lists = []
        for stage in range(stages):
            once = _rows(schedule.actions(stage, stages, 0, micro_batches, virtual_stages))
            rows = np.tile(once, num_batches + schedule.gradient_delay)
            rows["batch"] += np.repeat(np.arange(num_batches + schedule.gradient_delay, dtype=np.int32), len(once))
            lists.append(rows[(rows["batch"] >= 0) & (rows["batch"] < num_batches)])
        return cls(tuple(lists))

    @property
    def stages(self) -> int:
        return len(self.lists)

    @cached_property
    def steady_batches(self) -> int:
        """Mini-batches that end as they would in a longer program: all, but for the last one where stages begin a
        mini-batch before they have completed the one before."""
        overlap = any(np.any(np.diff(rows["batch"]) < 0) for rows in self.lists)
        return max(1, 1 + max(int(rows["batch"].max()) for rows in self.lists if len(rows)) - overlap)

    def action(self, stage: int, index: int) -> Action:
        """The action at index `index` in the list of `stage`."""
        virtual, kind, batch, number, down = self.lists[stage][index].item()
        return Action(virtual, _KINDS[kind], batch, number, down)

    def actions(self, stage: int) -> tuple[Action, ...]:
        """The whole list of `stage`."""
        return tuple(self.action(stage, index) for index in range(len(self.lists[stage])))


def _rows(actions: Sequence[Action]) -> Rows:
    return np.array([(each.stage, NUMBERS[each.kind], *each[2:]) for each in actions], dtype=ROW)
