"""`resources`: devices, threads, and what each stage asks Ray for."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from alray.spec.choice import ByShape
from alray.spec.section import PositiveFloat, PositiveInt, Section, describe, refusal

Bundle = Annotated[dict[str, PositiveFloat], Field(min_length=1)]
"""What one stage asks for, by Ray's names: CPU, GPU, memory (bytes) or a custom resource."""


def _per_stage(value: Any) -> Any:
    if isinstance(value, dict | list | tuple):
        return value
    raise refusal(
        f"expected a section or a list of them, got {describe(value)}",
        "write such as {CPU: 1} or {CPU: 2, GPU: 1}",
    )


class Resources(Section):
    """What the run uses of a machine or cluster."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where stages compute. `auto`: cuda for stages that ask for a GPU in `per_stage`, cpu for others."""
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    """Threads of one stage; the same number holds without Ray."""
    per_stage: Annotated[
        Annotated[Bundle, Tag("section")]
        | Annotated[tuple[Bundle, ...], Field(strict=False, min_length=1), Tag("list")],
        Discriminator(ByShape((list, tuple), "list", "section")),
        BeforeValidator(_per_stage),
    ] = Field(default_factory=lambda: {"CPU": 1.0})
    """What Ray keeps for each stage: one section for all, or a list with one per stage. Default: one CPU."""
    memory_bytes: PositiveInt | None = None
    """What a stage may hold, bytes: `pipeline.partition: auto` and `pipeline.micro_batches: auto` keep within it. null:
    what `per_stage` asks for as `memory`, else on cuda the device's memory, on cpu the machine's over the stages."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels that a node must have to hold a stage."""
    stage_speed: Annotated[
        Annotated[Literal["auto"], Tag("word")]
        | Annotated[tuple[PositiveFloat, ...], Field(strict=False, min_length=1), Tag("list")],
        Discriminator(ByShape((list, tuple), "list", "word")),
    ] = "auto"
    """How fast each stage's device is beside the one `alray` is started on, one number a stage: the plan divides times
    by it. `auto`: measured where stages lie on other nodes or other devices, unless `pipeline.costs` are given."""

    @property
    def resolved_device(self) -> Literal["cpu", "cuda"]:
        """The device with `auto` decided: cuda where any stage is on one."""
        return "cuda" if "cuda" in map(self._device_of, self.bundles(1)) else "cpu"

    def device_of(self, stage: int) -> Literal["cpu", "cuda"]:
        """The kind of device of a stage: `per_stage` may ask for a GPU for some stages alone."""
        return self._device_of(self.bundles(stage + 1)[stage])

    def _device_of(self, bundle: dict[str, float]) -> Literal["cpu", "cuda"]:
        if self.device != "auto":
            return self.device
        return "cuda" if "GPU" in bundle else "cpu"

    def bundles(self, stages: int) -> list[dict[str, float]]:
        """What each of `stages` stages asks for, in order."""
        if isinstance(self.per_stage, dict):
            return [dict(self.per_stage) for _ in range(stages)]
        return [dict(bundle) for bundle in self.per_stage]
