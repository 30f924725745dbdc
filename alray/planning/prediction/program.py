"""A program as arrays: the action lists of all stages, each action encoded as one integer.

A thousand stages with a thousand mini-batches have more than five million actions. That is too many objects; the
simulation reads these arrays instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from alray.planning.schedules.actions import KINDS, LABELS, Action, ActionKind
from alray.planning.schedules.evaluation import evaluation_actions
from alray.planning.schedules.placement import Place, held, round_robin
from alray.planning.schedules.recomputation import schedule_with

_KINDS = tuple(KINDS)
_NUMBERS: dict[ActionKind, int] = {kind: 2 * index for index, kind in enumerate(_KINDS)}
_KIND_BITS, _CHUNK_BITS, _NUMBER_BITS = 8, 8, 16  # kind and direction, then chunk, then number, then mini-batch
_NUMBER = 1 << (_KIND_BITS + _CHUNK_BITS)
_BATCH = _NUMBER << _NUMBER_BITS

Codes = NDArray[np.int64]
Floats = NDArray[np.float64]


def kind_number(kind: ActionKind, down: bool = False) -> int:
    """The number in 0..255 that encodes a kind and a direction."""
    return _NUMBERS[kind] + down


NUM_KINDS = 2 * len(_KINDS)


def kinds(codes: Codes) -> Codes:
    """Kind and direction of each action, as `kind_number` numbers them."""
    return codes & ((1 << _KIND_BITS) - 1)


def chunks(codes: Codes) -> Codes:
    """Which of its stage's virtual stages each action names, counted from 0."""
    return (codes >> _KIND_BITS) & ((1 << _CHUNK_BITS) - 1)


def looked_up(table: NDArray[np.float64], program: Program, stage: int) -> NDArray[np.float64]:
    """Return the entry for each action of a stage from a table of shape [virtual stages, 2 * NUM_KINDS, ...].

    The second half of the numbers of kinds is for the parts of messages with labels.
    """
    codes = program.codes[stage]
    numbers = kinds(codes) + NUM_KINDS * (is_labels(codes, "S") | is_labels(codes, "R"))
    found: NDArray[np.float64] = table[program.virtual(stage), numbers]
    return found


def messages(codes: Codes) -> Codes:
    """Mini-batch and part of each action in one number, which is the same for a send and its receive."""
    return codes // _NUMBER


def parts(codes: Codes) -> Codes:
    """The part that each action names."""
    return messages(codes) & ((1 << _NUMBER_BITS) - 1)


def is_labels(codes: Codes, kind: ActionKind) -> NDArray[np.bool_]:
    """Whether each action sends ("S") or receives ("R") the labels of a training message, with local losses."""
    found: NDArray[np.bool_] = (kinds(codes) == kind_number(kind)) & (parts(codes) == LABELS)
    return found


def batches(codes: Codes) -> Codes:
    """Mini-batch of each action."""
    return codes // _BATCH


@dataclass(frozen=True, eq=False)
class Program:
    """The action lists of all stages; `codes[stage]` is an int64 array with one element per action."""

    codes: tuple[Codes, ...]
    place: Place = round_robin

    @classmethod
    def of(cls, lists: Iterable[Sequence[Action]]) -> Program:
        """The program of these lists, one for each stage. Virtual stages are placed by `round_robin`."""
        every = list(lists)
        return cls(tuple(_codes(actions, len(every)) for actions in every))

    @classmethod
    def of_schedule(
        cls,
        schedule: str,
        stages: int,
        num_batches: int,
        *,
        micro_batches: int = 1,
        virtual_stages: int = 1,
        recomputes: bool = False,
        clips_together: bool = False,
    ) -> Program:
        """The actions of a schedule for mini-batches 0 to `num_batches` - 1.

        Args:
            recomputes, clips_together: as in `StepSetting`.

        Raises PlanError where there is no such schedule, or where it cannot run with these numbers.
        """
        found = schedule_with(schedule, recomputes=recomputes, clips_together=clips_together)
        found.check(stages, micro_batches, virtual_stages)
        later = np.arange(num_batches + found.gradient_delay, dtype=np.int64)[:, None] * _BATCH
        lists = (found.actions(stage, stages, 0, micro_batches, virtual_stages) for stage in range(stages))
        every = [(_codes(actions, stages)[None, :] + later).ravel() for actions in lists]  # one stage after another
        return cls(tuple(codes[(codes >= 0) & (batches(codes) < num_batches)] for codes in every), found.place)

    @classmethod
    def of_evaluation(cls, stages: int, num_batches: int) -> Program:
        """The actions of one evaluation over `num_batches` batches."""
        return cls.of(evaluation_actions(stage, stages, num_batches) for stage in range(stages))

    @property
    def stages(self) -> int:
        return len(self.codes)

    @cached_property
    def num_batches(self) -> int:
        """Mini-batches 0 to `num_batches` - 1 occur in it."""
        return 1 + max(int(batches(codes).max()) for codes in self.codes if len(codes))

    @cached_property
    def steady_batches(self) -> int:
        """Mini-batches that end as they would in a longer program: all, but for the last one where stages begin a
        mini-batch before they have completed the one before."""
        overlap = any(np.any(np.diff(batches(codes)) < 0) for codes in self.codes)
        return max(1, self.num_batches - overlap)

    @cached_property
    def virtual_stages(self) -> int:
        """The largest number of virtual stages on one stage."""
        return 1 + max((int(chunks(codes).max()) for codes in self.codes if len(codes)), default=0)

    def stage_of(self, virtual: int) -> int:
        """The stage that holds a virtual stage."""
        return self.place(virtual, self.stages)

    def held(self, stage: int) -> list[int]:
        """The virtual stages that a stage holds, the lowest first."""
        return held(self.place, stage, self.stages, self.virtual_stages)

    def virtual(self, stage: int) -> Codes:
        """The virtual stage that each action of a stage names."""
        named: Codes = np.array(self.held(stage), dtype=np.int64)[chunks(self.codes[stage])]
        return named

    def action(self, stage: int, index: int) -> Action:
        """The action at index `index` in the list of `stage`."""
        code = int(self.codes[stage][index])
        batch, rest = divmod(code, _BATCH)
        number, rest = divmod(rest, _NUMBER)
        chunk, kind = divmod(rest, 1 << _KIND_BITS)
        return Action(self.held(stage)[chunk], _KINDS[kind // 2], batch, number, bool(kind % 2))

    def actions(self, stage: int) -> tuple[Action, ...]:
        """The whole list of `stage`."""
        return tuple(self.action(stage, index) for index in range(len(self.codes[stage])))


def _codes(actions: Sequence[Action], stages: int) -> Codes:
    return np.array(
        [
            each.batch * _BATCH
            + each.number * _NUMBER
            + (each.stage // stages << _KIND_BITS)
            + _NUMBERS[each.kind]
            + each.down
            for each in actions
        ],
        dtype=np.int64,
    )
