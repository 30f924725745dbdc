"""The setting of a step: everything its time hangs on but the cut into stages."""

from __future__ import annotations

import math
from dataclasses import dataclass

from alray.errors import PlanError
from alray.plan.costs import Costs
from alray.plan.pipelines import check_pipeline
from alray.spec.micro_batches import PIPELINES, batch_size_fault


@dataclass(frozen=True)
class Setting:
    """What a partition is chosen for, and what its step is predicted with.

    Raises PlanError where the schedule cannot have so many micro-batches or virtual stages, where micro-batches do not
    divide the mini-batch, and where there is not one speed or limit a stage.
    """

    schedule: str
    costs: Costs
    stages: int
    in_flight: int
    micro_batches: int = 1
    virtual_stages: int = 1
    stage_speed: tuple[float, ...] = ()  # of each stage's device, relative to the one the costs are of; (): all 1
    memory_limits: tuple[int, ...] = ()  # bytes each stage may hold; (): no limits
    replicas: int = 1
    cores: int | None = None  # processors that all stages and replicas share; None where each has its own

    def __post_init__(self) -> None:
        check_pipeline(self.schedule, self.stages, self.micro_batches, self.virtual_stages)
        fault = batch_size_fault(self.costs.batch_size, self.micro_batches)
        if fault is not None:
            raise PlanError(fault[0], mend=fault[1], key="pipeline.micro_batches")
        for name, values in (("speed", self.stage_speed), ("memory limit", self.memory_limits)):
            if len(values) not in (0, self.stages):
                raise PlanError(f"{len(values)} values of {name} for {self.stages} stages", mend="give one a stage")
            if not all(math.isfinite(value) and value > 0 for value in values):
                raise PlanError(f"a stage's {name} is not a finite number above 0: {list(values)}")

    @property
    def is_pipeline(self) -> bool:
        """Whether gradients travel between stages."""
        return self.schedule in PIPELINES

    @property
    def num_parts(self) -> int:
        """Parts a partition cuts the components into: one for each virtual stage."""
        return self.stages * self.virtual_stages

    @property
    def even_speed(self) -> bool:
        """Whether a component takes the same time on every stage."""
        return len(set(self.stage_speed)) <= 1

    @property
    def room(self) -> int:
        """Messages that may wait on an edge: torch has a buffer for every micro-batch, so none is ever held up."""
        return self.micro_batches if self.is_pipeline else self.in_flight
