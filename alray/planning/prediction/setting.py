"""The setting of a step: its layout, and what a cut into stages must keep to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from alray.planning.prediction.costs import Costs, Link
from alray.planning.schedules.actions import ActionKind
from alray.planning.schedules.micro_batches import batch_size_fault
from alray.planning.schedules.partition_rules import refuse, stage_faults
from alray.planning.schedules.placement import held
from alray.planning.schedules.recomputation import schedule_with
from alray.planning.schedules.schedule import Schedule, counts_of

if TYPE_CHECKING:
    from alray.planning.schedules.durations import Seconds


@dataclass(frozen=True)
class StepLayout:
    """What the time of a step depends on, except the cut into stages. A plan has that of its setting."""

    schedule: str  # its name; `scheduled` is the schedule itself
    costs: Costs
    stages: int
    in_flight: int
    micro_batches: int = 1  # equal parts each mini-batch is cut into
    virtual_stages: int = 1  # on each stage
    stage_speed: tuple[float, ...] = ()  # of each stage's device, relative to the device of the costs; (): all alike
    replicas: int = 1
    cores: int | None = None  # processors that all stages and replicas share; None where each has its own device
    in_turns: bool = False  # whether all stages and replicas take turns in one process
    recomputes: bool = False  # whether stages of a pipeline keep inputs only, and compute forwards again
    clips_together: bool = False  # whether stages wait for each other, to clip the gradients of all of them
    # links[i]: from stage i to the next one, of the last stage to stage 0; None: through the memory of their node.
    # (): all of them so.
    links: tuple[Link | None, ...] = ()

    @property
    def scheduled(self) -> Schedule:
        """The schedule of that name, with recomputation if `recomputes`, and barriers if `clips_together`."""
        return schedule_with(self.schedule, recomputes=self.recomputes, clips_together=self.clips_together)

    @property
    def num_parts(self) -> int:
        """How many parts the components are cut into: one per virtual stage."""
        return self.stages * self.virtual_stages

    @property
    def top(self) -> int:
        """The last virtual stage, counted from 0."""
        return self.num_parts - 1

    def stage_of(self, virtual: int) -> int:
        """The stage that holds a virtual stage."""
        return self.scheduled.place(virtual, self.stages)

    @property
    def holders(self) -> list[int]:
        """The stage that holds each virtual stage."""
        return [self.stage_of(virtual) for virtual in range(self.num_parts)]

    def held(self, stage: int) -> list[int]:
        """The virtual stages that a stage holds, the lowest first."""
        return held(self.scheduled.place, stage, self.stages, self.virtual_stages)

    def edges_between(self) -> list[tuple[int, int]]:
        """The stages between which outputs go up; gradients and routes go down the other way."""
        return list(dict.fromkeys(pair for pair in pairwise(self.holders) if pair[0] != pair[1]))

    @property
    def is_ring(self) -> bool:
        """Whether outputs of the last stage also go to stage 0, which is another one."""
        return (self.stages - 1, 0) in self.edges_between()

    @property
    def counts(self) -> Mapping[tuple[ActionKind, int], int]:
        """How many computations of each kind each virtual stage does for one mini-batch."""
        return counts_of(self.scheduled, self.stages, self.micro_batches, self.virtual_stages)

    def by_stage(self, seconds: Seconds) -> list[float]:
        """The seconds of each stage, from those of each virtual stage; 0 where there are none."""
        total = [0.0] * self.stages
        for stage, own in zip(self.holders, seconds, strict=False):
            total[stage] += own
        return total


@dataclass(frozen=True)
class StageMemory:
    """The parts of a stage that lie in the memory of its device. On a CPU that is everything."""

    snapshot: bool = True  # the copy that a checkpoint is written from
    waiting: bool = True  # messages from below that wait; the one that is worked on always does
    sent: bool = True  # messages that the stage above has not taken yet
    batches: int = 1  # mini-batches that stage 0 holds


ON_CPU = StageMemory()
# Snapshots go to host memory; so do messages that wait, except where stages take turns in one process. A mini-batch is
# copied to a GPU while it works on the one before.
ON_SHARED_GPU = StageMemory(snapshot=False, waiting=False, sent=False, batches=2)
ON_OWN_GPU = StageMemory(snapshot=False, waiting=False, batches=2)  # NCCL sends from the tensors themselves
IN_TURNS_ON_GPU = StageMemory(snapshot=False, batches=2)


@dataclass(frozen=True)
class StepSetting(StepLayout):
    """The inputs for choosing a partition and predicting its step.

    Raises PlanError where there is no such schedule, where it cannot run with these numbers, where micro-batches do not
    divide the mini-batch, and where there are more (virtual) stages than components.
    """

    evaluation_speed: tuple[float, ...] | None = None  # `stage_speed` of replica 0, which evaluates; None: the same
    memory_limits: tuple[int, ...] = ()  # bytes each stage may hold; (): no limits
    memories: tuple[StageMemory, ...] = ()  # what of each stage counts; (): all ON_CPU

    def __post_init__(self) -> None:
        self.scheduled.check(self.stages, self.micro_batches, self.virtual_stages)
        fault = batch_size_fault(self.costs.batch_size, self.micro_batches)
        refuse(() if fault is None else [("micro_batches", *fault)])
        refuse(stage_faults(len(self.costs.components), self.stages, self.virtual_stages))

    def memory(self, stage: int) -> StageMemory:
        """The parts of `stage` that lie in the memory of its device."""
        return self.memories[stage] if self.memories else ON_CPU
