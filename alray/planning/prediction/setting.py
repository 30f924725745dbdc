"""The setting of a step: its layout, and what a cut into stages must keep to."""

from __future__ import annotations

from dataclasses import dataclass

from alray.core.errors import PlanError
from alray.planning.prediction.layout import StepLayout
from alray.planning.prediction.partition import check_size
from alray.planning.schedules.micro_batches import batch_size_fault


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
        if fault is not None:
            raise PlanError(fault[0], hint=fault[1], key="pipeline.micro_batches")
        check_size(len(self.costs.components), self.stages, self.virtual_stages)

    def memory(self, stage: int) -> StageMemory:
        """The parts of `stage` that lie in the memory of its device."""
        return self.memories[stage] if self.memories else ON_CPU
