"""The devices and links that the stages of a plan run on, and who finds them."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from alray.config.loading.overrides import override_text
from alray.config.sections.resources import accelerator_of
from alray.config.sections.spec import Spec
from alray.core.errors import PlanError
from alray.planning.prediction.costs import Costs, Link
from alray.planning.prediction.machines import NO_LIMIT_BYTES
from alray.planning.prediction.stage_devices import StageDevices

if TYPE_CHECKING:
    from alray.planning.prediction.plan import Plan
    from alray.runtime.probe.device_speed import SpeedTest

Layout = tuple[int, int]
"""Stages and replicas."""
ALIKE = 0.1
"""Two speeds count as equal if they differ by less. Two measurements of one device differ by up to this much."""


def rounded_speeds(speeds: list[float]) -> tuple[float, ...]:
    """The speeds with those near 1 set to 1; () if all are."""
    rounded = tuple(1.0 if abs(speed - 1.0) < ALIKE else speed for speed in speeds)
    return () if set(rounded) == {1.0} else rounded


def stage_links(spec: Spec, stages: int, found: StageDevices) -> tuple[Link | None, ...]:
    """Between neighbouring stages: as the spec says, or else as measured between nodes.

    Raises PlanError where messages cannot be delayed as the spec says.
    """
    if spec.machines is not None or not spec.pipeline.links or stages == 1:
        return found.links
    several, on_gpus = len(set(found.nodes)) > 1, spec.resources.resolved_device != "cpu"
    if several or on_gpus:
        raise PlanError(
            f"messages {'between several nodes' if several else 'of GPUs'} are not delayed",
            key="pipeline.links",
            hint="leave it out, or run on the processors of one machine",
        )
    given = [spec.pipeline.link(lower) for lower in range(stages)]
    return tuple(
        Link(link.latency_s, link.s_per_byte, link.s_per_byte, NO_LIMIT_BYTES, own_line=True)
        for link in given
        if link is not None
    )


def with_their_resources(spec: Spec) -> Spec:
    """The spec with the kind of device of its machines, where it has some: a plan then counts the memory and messages
    of such devices."""
    if spec.machines is None:
        return spec
    on_gpu = spec.machines.described().kinds[0].accelerator
    wanted = {"CPU": 1.0, "GPU": 1.0} if on_gpu else {"CPU": 1.0}
    named = "cuda" if spec.resources.device in ("auto", "cpu") else spec.resources.device
    resources = spec.resources.model_copy(update={"device": named if on_gpu else "cpu", "per_stage": wanted})
    return spec.model_copy(update={"resources": resources})


def overrides_for_devices(spec: Spec) -> list[str]:
    """The overrides with which each stage of a run asks for a whole accelerator, as the machines of the spec have one
    for each; none where it does, and where the machines have none.

    Args:
        spec: as it was written, not that of `with_their_resources`.
    """
    resources = spec.resources
    if spec.machines is None or not spec.machines.described().kinds[0].accelerator:
        return []
    bundles = resources.bundles(spec.pipeline.stages)
    names = [accelerator_of(each) or "GPU" for each in bundles]
    whole = [{**each, name: max(1.0, each.get(name, 0.0))} for each, name in zip(bundles, names, strict=True)]
    numbers = [{name: int(each) if each == int(each) else each for name, each in bundle.items()} for bundle in whole]
    asked = numbers[0] if isinstance(resources.per_stage, dict) else numbers
    return [
        *(["resources.device=auto"] if resources.device == "cpu" else []),
        *([override_text("resources.per_stage", asked)] if whole != bundles else []),
    ]


def device_notes(spec: Spec) -> list[str]:
    """A line for the user where a run asks for other devices than its plan counts with (`overrides_for_devices`)."""
    if not (missing := overrides_for_devices(spec)):
        return []
    return [f"the plan counts a whole accelerator for each stage: for a run add {shlex.join(missing)}"]


class FindsDevices(ABC):
    """The part of an engine that the planner uses."""

    def measures_devices(self) -> bool:
        """Whether `find_devices` will measure the devices of the stages. What there is here says nothing of them."""
        return False

    def find_devices(
        self, plan: Plan, costs: Costs, speed_test: Callable[[], SpeedTest], note: Callable[[str], None]
    ) -> StageDevices | None:
        """The devices that the next graph of this plan will run on; None if they are like this machine's.

        Args:
            costs: as measured on this machine.
            speed_test: makes the measurement to run on other devices.
            note: is called with a line about each device that could not be measured.
        """
        return None

    @abstractmethod
    def room(self, layouts: Sequence[Layout]) -> Layout | None:
        """The first of these that the nodes alive now could hold if they were empty; None if they hold none.

        Args:
            layouts: the one until now, then those that the run may go on with.
        """
