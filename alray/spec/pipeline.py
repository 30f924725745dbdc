"""`pipeline`: how components are laid on stages, and in which order the stages work."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from alray.spec.choice import ByShape
from alray.spec.section import (
    Counts,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Section,
    describe,
    refusal,
)

SCHEDULES: dict[str, tuple[str, ...]] = {
    "associated_learning": ("streamed", "sequential", "parallel_backward", "overlapped"),
    "backpropagation": ("single",),
}
"""The schedules each kind of method can run in; the first is what `auto` means for it."""


class Cost(Section):
    """What one component takes for one mini-batch, given instead of measured."""

    forward_s: PositiveFloat
    """Seconds of the forward pass."""
    backward_s: NonNegativeFloat
    """Seconds of the local losses and their gradients."""
    update_s: NonNegativeFloat
    """Seconds of the optimizers' steps."""


def _partition(value: Any) -> Any:
    if isinstance(value, list | tuple) or value in ("auto", "uniform", "parameters"):
        return value
    raise refusal(
        f"expected `auto`, `uniform`, `parameters` or a list, got {describe(value)}",
        "a list holds the number of components of each stage, such as [2, 2]",
    )


class Pipeline(Section):
    """Schedule, stages and partition."""

    schedule: Literal["auto", "streamed", "sequential", "parallel_backward", "overlapped", "single"] = "auto"
    """Order of work. `auto`: `streamed` for local losses, `single` for backpropagation."""
    stages: PositiveInt = 1
    """Number of device stages. Left out beside a `partition` that is a list: the length of that list."""
    partition: Annotated[
        Annotated[Counts, Tag("list")] | Annotated[Literal["auto", "uniform", "parameters"], Tag("name")],
        Discriminator(ByShape((list, tuple), "list", "name")),
        BeforeValidator(_partition),
    ] = "auto"
    """Components per stage. `auto`: the slowest stage is as fast as can be. `uniform`: even numbers of
    components. `parameters`: even numbers of parameters. A list: as given, `repeat` counted."""
    in_flight: PositiveInt = 4
    """Mini-batches that may wait on an edge between two stages."""
    costs: Annotated[tuple[Cost, ...], Field(strict=False, min_length=1)] | None = None
    """Costs of the components, one entry each. null: measured."""

    @model_validator(mode="before")
    @classmethod
    def _stages_of_a_list(cls, value: Any) -> Any:
        partition = value.get("partition") if isinstance(value, dict) and "stages" not in value else None
        return {**value, "stages": max(1, len(partition))} if isinstance(partition, list | tuple) else value

    def resolved_schedule(self, method_kind: str) -> str:
        """The schedule with `auto` decided for this kind of method."""
        return SCHEDULES[method_kind][0] if self.schedule == "auto" else self.schedule
