"""The type of a schedule: a value that answers every question about it.

To add a schedule, write a file in `alray/parts/schedules` that makes one `SCHEDULE`; the table finds it
(`alray.planning.schedules.table`).
The spec, the plan, the stages and the reports ask that value; none of them knows a schedule by its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal, NamedTuple, Protocol

from alray.core.counting import counted
from alray.core.errors import PlanError
from alray.planning.schedules.actions import COMPUTE, Action, ActionKind
from alray.planning.schedules.micro_batches import (
    MOST_MICRO_BATCHES,
    MOST_PER_STAGE,
    MOST_VIRTUAL_STAGES,
    PER_STAGE,
    Demand,
    Fault,
)
from alray.planning.schedules.partition_rules import refuse
from alray.planning.schedules.placement import Place, round_robin

Methods = Literal["local losses", "backpropagation"]
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


class Layout(NamedTuple):
    """How many stages and micro-batches there are."""

    stages: int
    micro_batches: int


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """One schedule of the pipeline."""

    name: str
    """As `pipeline.schedule` names it."""
    methods: Methods
    """The methods that can run in it: those with local losses, or backpropagation."""
    actions: Actions
    """The actions of one mini-batch on one stage."""
    default_on: tuple[Literal["one stage", "several stages"], ...] = ()
    """Where `pipeline.schedule: auto` means this schedule."""
    one_stage: bool = False
    """Whether it runs on one stage only."""
    demand: Demand | None = None
    """Its check of the number of micro-batches. None: it does not cut mini-batches."""
    fewest_virtual_stages: int | None = None
    """Fewest virtual stages on each stage, and their number by default. None: it has no virtual stages."""
    most_virtual_stages: int = MOST_VIRTUAL_STAGES
    """Most virtual stages on each stage."""
    place: Place = round_robin
    """Which stage holds which virtual stage."""
    only_layout: Layout | None = None
    """The only stages and micro-batches that it is for. None: it is for any number that it does not refuse."""
    in_order: bool = True
    """Whether every component takes micro-batches in the order of their numbers, and adds up their gradients in this
    order, as on one stage. Other orders give sums other bits, and buffers such as those of batch normalisation."""
    gradient_delay: int = 0
    """How many updates gradients are late: 0, or 1 where mini-batch t is computed with the weights from before the last
    update. Then stages hold two versions of their weights."""

    def __post_init__(self) -> None:
        if not self.is_pipeline and self.cuts_mini_batches:
            raise ValueError(f"the schedule `{self.name}` is no pipeline, so it has no micro-batches")
        if self.one_stage and self.fewest_virtual_stages is not None:
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
    def default_virtual_stages(self) -> int:
        """Virtual stages of each stage where the spec names no number."""
        return self.fewest_virtual_stages or 1

    def default_micro_batches(self, stages: int, batch_size: int | None = None) -> int:
        """Micro-batches of a mini-batch of so many samples where the spec names no number.

        Two per stage if that is possible. Otherwise the next larger number that is, up to four per stage, or else the
        next smaller one, down to one per stage; with fewer samples than stages, one for each sample. If there is none,
        two per stage: the spec is refused.
        """
        if self.only_layout is not None:
            return self.only_layout.micro_batches
        usual = PER_STAGE * stages if self.cuts_mini_batches else 1
        if batch_size is None or not self.cuts_mini_batches:
            return usual
        if batch_size < stages and self.micro_batches_fault(stages, batch_size) is None:
            return batch_size
        possible = self.possible_micro_batches(stages, batch_size)
        larger = [number for number in possible if usual <= number <= MOST_PER_STAGE * stages]
        smaller = [number for number in possible if number < usual]
        return next(iter(larger + smaller[::-1]), usual)

    def drains(self, stages: int) -> bool:
        """Whether stages drain while mini-batches go through: at a barrier, or as those of a pipeline."""
        return self.is_pipeline or "W" in kinds_of(self, stages)

    def stages_fault(self, stages: int) -> Fault | None:
        """Why it cannot run on so many stages; None where it can."""
        if self.only_layout is None or stages == self.only_layout.stages:
            return None
        own = counted(self.only_layout.stages, "stage")
        return f"`{self.name}` is for {own}, got {stages}", "leave it out, or choose another schedule"

    def micro_batches_fault(self, stages: int, micro_batches: int) -> Fault | None:
        """Why it cannot run so many micro-batches on so many stages; None where it can."""
        if self.demand is None:
            if micro_batches == 1:
                return None
            return f"`{self.name}` does not cut mini-batches, got {micro_batches}", "leave it out"
        if self.only_layout is not None and micro_batches != self.only_layout.micro_batches:
            return (
                f"`{self.name}` is for {counted(self.only_layout.micro_batches, 'micro-batch', 'micro-batches')}, "
                f"got {micro_batches}",
                "leave it out, or give another file",
            )
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
        fewest, most = self.fewest_virtual_stages, self.most_virtual_stages
        if fewest == most != virtual_stages:
            each = counted(most, "virtual stage")
            return f"`{self.name}` has {each} on each stage, got {virtual_stages}", "leave it out"
        if not fewest <= virtual_stages <= most:
            return (
                f"`{self.name}` has {fewest} to {most} virtual stages per stage, got {virtual_stages}",
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
            "stages": self.stages_fault(stages),
            "micro_batches": self.micro_batches_fault(stages, micro_batches),
            "virtual_stages": self.virtual_stages_fault(virtual_stages),
        }
        refuse((key, *fault) for key, fault in faults.items() if fault is not None)

    def possible_micro_batches(self, stages: int, batch_size: int) -> list[int]:
        """The numbers of micro-batches that `pipeline.micro_batches: auto` chooses from, the smallest first.

        There is at least one micro-batch per stage, so that every stage has something to do.
        """
        first = stages if self.only_layout is None else self.only_layout.micro_batches
        return [
            number
            for number in range(first, min(batch_size, MOST_MICRO_BATCHES) + 1)
            if batch_size % number == 0 and self.micro_batches_fault(stages, number) is None
        ]


@cache
def kinds_of(schedule: Schedule, stages: int) -> frozenset[ActionKind]:
    """The kinds of the actions of a schedule on so many stages."""
    # Further stages do what the first two do.
    stages = min(stages, 2) if schedule.only_layout is None else schedule.only_layout.stages
    parts = schedule.default_micro_batches(stages), schedule.default_virtual_stages
    return frozenset(action.kind for stage in range(stages) for action in schedule.actions(stage, stages, 0, *parts))


@lru_cache(maxsize=4)  # the edges of a stage are looked at one after another, and its memory with them
def run_of(
    schedule: Schedule, stage: int, stages: int, mini_batches: int, micro_batches: int = 1, virtual_stages: int = 1
) -> tuple[Action, ...]:
    """The actions of mini-batches 0 to `mini_batches` - 1 on one stage, with a flush at the end."""
    return tuple(
        action
        for batch in range(mini_batches + schedule.gradient_delay)
        for action in schedule.actions(stage, stages, batch, micro_batches, virtual_stages)
        if 0 <= action.batch < mini_batches
    )


@cache
def counts_of(
    schedule: Schedule, stages: int, micro_batches: int, virtual_stages: int
) -> Mapping[tuple[ActionKind, int], int]:
    """How many computations of each kind each virtual stage does for one mini-batch."""
    return Counter(
        (action.kind, action.stage)
        for stage in range(stages)
        for action in schedule.actions(stage, stages, 0, micro_batches, virtual_stages)
        if action.kind in COMPUTE
    )
