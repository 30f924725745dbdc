"""`resources`: devices, threads, and what each stage requests from Ray."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from alray.config.sections.choice import ByShape
from alray.config.sections.section import PositiveFloat, PositiveInt, Section, describe, refusal

ACCELERATORS = ("GPU", "HPU", "NPU")
"""What Ray calls accelerators. Those of NVIDIA, AMD and Intel are its `GPU`."""


def _in_capitals(bundle: dict[str, float]) -> dict[str, float]:
    for name in bundle:
        if name.upper() != name and name.upper() in ("CPU", *ACCELERATORS):
            raise refusal(f"Ray knows no `{name}`", f"write {name.upper()} in its place")
    return bundle


Bundle = Annotated[dict[str, PositiveFloat], Field(min_length=1), AfterValidator(_in_capitals)]
"""The request of one stage, by Ray's names: CPU, GPU (also NPU and HPU), memory (in bytes) or a custom resource."""


def accelerator_of(bundle: Mapping[str, float]) -> str | None:
    """What a bundle calls the accelerator that it asks for; None: it asks for none."""
    return next((name for name in ACCELERATORS if name in bundle), None)


def share_of(bundle: Mapping[str, float]) -> float:
    """The accelerators that a bundle asks for; 1 where it does not say."""
    return next((bundle[name] for name in ACCELERATORS if name in bundle), 1.0)


def _per_stage(value: Any) -> Any:
    if isinstance(value, dict | list | tuple):
        return value
    raise refusal(
        f"expected a section or a list of them, got {describe(value)}",
        "write, for example, {CPU: 1} or {CPU: 2, GPU: 1}",
    )


_KIND = "^[a-z][a-z0-9]*$"  # torch's names of kinds of devices


def _device(value: Any) -> Any:
    if isinstance(value, str) and value != "gpu" and re.match(_KIND, value):
        return value
    raise refusal(
        f"expected auto, cpu or torch's name of an accelerator, got {describe(value)}",
        "write, for example, cuda or xpu; auto takes the accelerator that torch offers",
    )


class Resources(Section):
    """The resources of a machine or cluster that the run uses."""

    device: Annotated[str, BeforeValidator(_device), Field(pattern=_KIND, examples=["auto", "cpu", "cuda", "xpu"])] = (
        "auto"
    )
    """Device of the stages: `cpu`, or a kind of accelerator that torch offers, by torch's name: `cuda` (NVIDIA, and AMD
    by ROCm), `xpu`, or that of another package. `auto`: the accelerator that torch offers for stages that request a
    GPU, NPU or HPU in `per_stage`, cpu for the others. Default: auto."""
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    """Number of threads of a stage, also with `--inline`. Default: 1."""
    tf32: Literal["none", "convolutions", "all"] = "convolutions"
    """Operations on GPUs that round their float32 inputs to TF32, which is faster and less precise: `none`,
    `convolutions`, or `all`, which adds matrix products. It changes the bits, and does nothing on a CPU. Default:
    convolutions, as in torch."""
    per_stage: Annotated[
        Annotated[Bundle, Tag("section")]
        | Annotated[tuple[Bundle, ...], Field(strict=False, min_length=1), Tag("list")],
        Discriminator(ByShape((list, tuple), "list", "section")),
        BeforeValidator(_per_stage),
    ] = Field(default_factory=lambda: {"CPU": 1.0})
    """Resources that Ray reserves for each stage: one section for all stages, or a list with one section for each
    stage. Default: one CPU."""
    memory_bytes: PositiveInt | None = None
    """Memory of a stage in bytes. `pipeline.partition: auto` and `pipeline.micro_batches: auto` stay within it. Of
    `machines`, at most what their devices have. null: the `memory` in `per_stage`, on a GPU at most that of the GPU;
    without it, the memory of the GPU, or an equal part of the machine's memory."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels that a node must have to run a stage. Default: none."""

    @property
    def resolved_device(self) -> str:
        """The kind of device, as by `device_of`: an accelerator if any stage uses it."""
        return next((kind for kind in map(self._device_of, self.bundles(1)) if kind != "cpu"), "cpu")

    def device_of(self, stage: int) -> str:
        """Return the kind of device of a stage; `auto`: the accelerator that torch offers where the stage is.
        `per_stage` may request GPUs for some stages only."""
        return self._device_of(self.bundles(stage + 1)[stage])

    def _device_of(self, bundle: dict[str, float]) -> str:
        return "cpu" if self.device == "auto" and accelerator_of(bundle) is None else self.device

    def bundles(self, stages: int) -> list[dict[str, float]]:
        """Return the request of each of `stages` stages, in order."""
        if isinstance(self.per_stage, dict):
            return [dict(self.per_stage) for _ in range(stages)]
        return [dict(bundle) for bundle in self.per_stage]
