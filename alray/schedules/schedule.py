"""The type of a schedule: a value that answers every question about it.

To add a schedule, write a file that makes one `Schedule`, and add it to the table in `alray.schedules.table`. The spec,
the plan, the stages and the reports ask that value; none of them knows a schedule by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Literal, Protocol

from alray.errors import PlanError
from alray.schedules.actions import COMPUTE, Action, ActionKind
from alray.schedules.durations import Durations
from alray.schedules.micro_batches import (
    MOST_MICRO_BATCHES,
    MOST_PER_STAGE,
    MOST_VIRTUAL_STAGES,
    PER_STAGE,
    Demand,
    Fault,
)

Methods = Literal["local losses", "backpropagation"]
Bound = Callable[[Durations, int, int], float]
Computation = tuple[ActionKind, int, int]
"""Kind, virtual stage, micro-batch."""


class Actions(Protocol):
    """The actions of one mini-batch on one stage, in order.

    A schedule without a flush begins a mini-batch before the last one has ended: then these are the actions from one
    beginning to the next, and some are those of the mini-batch before, `batch - 1`.
    """

    def __call__(
        self, stage: int, stages: int, batch: int, micro_batches: int, virtual_stages: int
    ) -> tuple[Action, ...]: ...


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """One schedule of the pipeline. Raises ValueError where a part is missing or two parts contradict each other."""

    name: str
    """As `pipeline.schedule` names it."""
    methods: Methods
    """The methods that can run in it: those with local losses, or backpropagation."""
    actions: Actions
    """The actions of one mini-batch on one stage."""
    bound: Bound
    """Takes durations, stages and micro-batches. Returns the seconds that no step in steady state can be below."""
    formula: str
    """The bound as text. F, L, B and U are the seconds of a stage's actions for one mini-batch; B here includes L and
    U in schedules of local losses. f and b are those of one micro-batch, M the number of micro-batches."""
    limited_by: str
    """One sentence: what limits the step. `alray.prediction.limits` fills in its fields."""
    default_on: tuple[Literal["one stage", "several stages"], ...] = ()
    """Where `pipeline.schedule: auto` means this schedule."""
    slowest_stage: bool = False
    """Whether a step takes as long as its slowest stage, so that a dynamic programme finds the best cut. The cuts of
    other schedules have to be simulated."""
    one_stage: bool = False
    """Whether it runs on one stage only."""
    demand: Demand | None = None
    """Its check of the number of micro-batches. None: it does not cut mini-batches."""
    fewest_virtual_stages: int | None = None
    """Fewest virtual stages on each stage, and their number by default. None: it has no virtual stages."""
    gradient_delay: int = 0
    """How many updates gradients are late: 0, or 1 where mini-batch t is computed with the weights from before the last
    update. Then stages hold two versions of their weights."""

    def __post_init__(self) -> None:
        for part in fields(self):
            if part.name in ("name", "methods", "actions", "bound", "formula", "limited_by") and not getattr(
                self, part.name
            ):
                raise ValueError(f"the schedule `{self.name}` has no {part.name}")
        if not self.is_pipeline and self.cuts_mini_batches:
            raise ValueError(f"the schedule `{self.name}` is no pipeline, so it has no micro-batches")
        if self.one_stage and self.has_virtual_stages:
            raise ValueError(f"the schedule `{self.name}` runs on one stage, so it has no virtual stages")

    @property
    def local_losses(self) -> bool:
        """Whether it is for methods with local losses, where nothing travels backwards."""
        return self.methods == "local losses"

    @property
    def is_pipeline(self) -> bool:
        """Whether gradients travel between stages."""
        return not self.local_losses and not self.one_stage

    @property
    def cuts_mini_batches(self) -> bool:
        """Whether it cuts mini-batches into micro-batches."""
        return self.demand is not None

    @property
    def has_virtual_stages(self) -> bool:
        """Whether a stage may hold several virtual stages: runs of components that do not follow each other."""
        return self.fewest_virtual_stages is not None

    @property
    def default_virtual_stages(self) -> int:
        """Virtual stages of each stage where the spec names no number."""
        return self.fewest_virtual_stages or 1

    def default_micro_batches(self, stages: int, batch_size: int | None = None) -> int:
        """Micro-batches of a mini-batch of so many samples where the spec names no number.

        Two per stage if that is possible. Otherwise the next larger number that is, up to four per stage, or else the
        next smaller one. If there is none, two per stage: the spec is refused.
        """
        usual = PER_STAGE * stages if self.cuts_mini_batches else 1
        if batch_size is None or not self.cuts_mini_batches:
            return usual
        possible = self.possible_micro_batches(stages, batch_size)
        larger = [number for number in possible if usual <= number <= MOST_PER_STAGE * stages]
        smaller = [number for number in possible if number < usual]
        return next(iter(larger + smaller[::-1]), usual)

    def kinds(self, stages: int) -> frozenset[ActionKind]:
        """The kinds of its actions on so many stages."""
        return _kinds(self, min(stages, 2))  # further stages do what these two do

    def has_barrier(self, stages: int) -> bool:
        """Whether stages wait for each other at a barrier."""
        return "W" in self.kinds(stages)

    def run_of(
        self, stage: int, stages: int, mini_batches: int, micro_batches: int = 1, virtual_stages: int = 1
    ) -> list[Action]:
        """The actions of mini-batches 0 to `mini_batches` - 1 on one stage, with a flush at the end."""
        return [
            action
            for batch in range(mini_batches + self.gradient_delay)
            for action in self.actions(stage, stages, batch, micro_batches, virtual_stages)
            if 0 <= action.batch < mini_batches
        ]

    def computations(
        self, stage: int, stages: int, micro_batches: int = 1, virtual_stages: int = 1
    ) -> list[Computation]:
        """The forwards and backwards of one mini-batch on one stage, in order."""
        return [
            (action.kind, action.stage, action.number)
            for action in self.run_of(stage, stages, 1, micro_batches, virtual_stages)
            if action.kind in ("F", "B", "I", "G")
        ]

    def computing_s(self, durations: Durations, stages: int, micro_batches: int) -> list[float]:
        """Seconds that each stage computes for one mini-batch, over all its micro-batches and virtual stages."""
        kinds = self.kinds(stages)
        total = [0.0] * len(durations.forward_s)
        for kind, seconds in durations.computations.items():
            if kind in kinds and kind in COMPUTE and len(seconds):
                times = 1 if kind == "U" else micro_batches
                total = [before + times * own for before, own in zip(total, seconds, strict=True)]
        return [sum(total[stage::stages]) for stage in range(stages)]

    def micro_batches_fault(self, stages: int, micro_batches: int) -> Fault | None:
        """Why it cannot run so many micro-batches on so many stages; None where it can."""
        if self.demand is None:
            if micro_batches == 1:
                return None
            return f"`{self.name}` does not cut mini-batches, got {micro_batches}", "leave it out"
        if not 1 <= micro_batches <= MOST_MICRO_BATCHES:
            return f"{micro_batches} micro-batches", f"use 1 to {MOST_MICRO_BATCHES}"
        return self.demand(stages, micro_batches)

    def virtual_stages_fault(self, virtual_stages: int) -> Fault | None:
        """Why it cannot have so many virtual stages on each stage; None where it can."""
        if self.fewest_virtual_stages is None:
            if virtual_stages == 1:
                return None
            return (
                f"`{self.name}` has one virtual stage on each stage, got {virtual_stages}",
                "leave it out, or choose a schedule with virtual stages",
            )
        fewest = self.fewest_virtual_stages
        if not fewest <= virtual_stages <= MOST_VIRTUAL_STAGES:
            return (
                f"`{self.name}` has {fewest} to {MOST_VIRTUAL_STAGES} virtual stages per stage, got {virtual_stages}",
                "use a number in that range, or choose another schedule",
            )
        return None

    def check(self, stages: int, micro_batches: int, virtual_stages: int) -> None:
        """Raises PlanError where it cannot run on so many stages, or with so many micro-batches or virtual stages."""
        if self.one_stage and stages != 1:
            raise PlanError(
                f"schedule `{self.name}` runs on one stage, not on {stages}",
                hint="set pipeline.stages to 1 or choose another schedule",
                key="pipeline.schedule",
            )
        faults = {
            "micro_batches": self.micro_batches_fault(stages, micro_batches),
            "virtual_stages": self.virtual_stages_fault(virtual_stages),
        }
        for key, fault in faults.items():
            if fault is not None:
                raise PlanError(fault[0], hint=fault[1], key=f"pipeline.{key}")

    def possible_micro_batches(self, stages: int, batch_size: int) -> list[int]:
        """The numbers of micro-batches that `pipeline.micro_batches: auto` chooses from, the smallest first.

        There is at least one micro-batch per stage, so that every stage has something to do.
        """
        return [
            number
            for number in range(stages, min(batch_size, MOST_MICRO_BATCHES) + 1)
            if batch_size % number == 0 and self.micro_batches_fault(stages, number) is None
        ]


@cache
def _kinds(schedule: Schedule, stages: int) -> frozenset[ActionKind]:
    parts = schedule.default_micro_batches(stages), schedule.default_virtual_stages
    return frozenset(action.kind for stage in {0, stages - 1} for action in schedule.actions(stage, stages, 0, *parts))
