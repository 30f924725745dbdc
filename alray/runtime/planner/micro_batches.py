"""How many micro-batches a run has: `pipeline.micro_batches: auto` decided, and what the run folder keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from alray.config.sections.spec import Spec
from alray.core.errors import PlanError
from alray.models.network import Network
from alray.planning.prediction.best import fullest_stage, nearest_to_fitting
from alray.planning.prediction.partition import requested_partition
from alray.planning.prediction.setting import StepSetting
from alray.planning.prediction.shares import first_shares
from alray.planning.schedules.table import SCHEDULES
from alray.runtime.device import devices
from alray.runtime.planner.memory_limits import stage_memory_limits, step_setting
from alray.runtime.probe.estimate import estimate_costs


def with_micro_batches(spec: Spec, network: Network) -> Spec:
    """The spec with `auto` replaced by a number. A number or null is left as it is.

    Only sizes decide, not times: the same spec gets the same number on the same kind of machine, with Ray or without.
    Raises PlanError if nothing fits, or if nothing is known of the memory.
    """
    if spec.pipeline.micro_batches != "auto":
        return spec
    stages, replicas = spec.pipeline.stages, spec.replicas.count
    device = devices.at_hand(spec.resources.resolved_device)
    samples = max(first_shares(replicas, spec.data.batch_size, spec.replicas.shares))
    costs = estimate_costs(network, batch_size=samples, device=device)
    candidates = SCHEDULES[spec.schedule].possible_micro_batches(stages, samples)
    limits = stage_memory_limits(spec, stages, replicas, device)
    if not limits:
        raise PlanError(
            "the memory of the devices is not known, and it decides the number of micro-batches",
            hint="set resources.memory_bytes, or give a number",
            key="pipeline.micro_batches",
        )
    setting = step_setting(spec, costs, stages, replicas, micro_batches=candidates[0], memory_limits=limits)
    number = fewest_micro_batches(setting, spec.pipeline.partition, candidates)
    return with_pipeline(spec, micro_batches=number)


def with_pipeline(spec: Spec, **values: Any) -> Spec:
    """The spec with these values in its section `pipeline`."""
    return spec.model_copy(update={"pipeline": spec.pipeline.model_copy(update=values)})


def as_saved(spec: Spec) -> Spec:
    """The spec as the run folder keeps it: with schedule and micro-batches decided if the schedule cuts mini-batches.

    Both defaults depend on the number of stages. A run that is resumed on other stages must keep what it began with.
    """
    if not SCHEDULES[spec.schedule].cuts_mini_batches:
        return spec
    return with_pipeline(spec, schedule=spec.schedule, micro_batches=spec.micro_batches)


def fewest_micro_batches(setting: StepSetting, partition: str | Sequence[int], candidates: Sequence[int]) -> int:
    """The first of `candidates` with which no stage exceeds its memory limit.

    Args:
        setting: with a memory limit for each stage; its number of micro-batches is ignored.
        partition: as in the spec; with `auto` it is enough that one cut fits.
        candidates: numbers of micro-batches, the smallest first.

    Raises:
        PlanError: where none fits; the error names the stage that is over its limit with the most micro-batches.
    """
    parameters = [component.parameters for component in setting.costs.components]
    for number in candidates:
        tried = replace(setting, micro_batches=number)
        cut = requested_partition(partition, parameters, setting.num_parts, auto=partial(nearest_to_fitting, tried))
        fullest = fullest_stage(tried, cut)
        if fullest.fits:
            return number
    samples = setting.costs.batch_size // number
    raise PlanError(
        f"even in {number} micro-batches, of {samples} {'sample' if samples == 1 else 'samples'} each, stage "
        f"{fullest.stage} of the cut {list(cut)} needs {fullest.need:,} bytes and has {fullest.limit:,}",
        hint="use more stages, larger devices, or set resources.memory_bytes where there is more memory than it seems",
        key="pipeline.micro_batches",
    )
