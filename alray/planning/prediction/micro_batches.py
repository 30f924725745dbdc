"""`pipeline.micro_batches: auto`: the fewest micro-batches with which every stage keeps within its memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from alray.core.errors import PlanError
from alray.planning.prediction.best import fullest_stage, nearest_to_fitting
from alray.planning.prediction.memory import memory_of
from alray.planning.prediction.partition import requested_partition
from alray.planning.prediction.setting import StepSetting


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
        over, stage = fullest_stage(tried, cut)
        if over <= 1.0:
            return number
    need, limit = memory_of(tried, cut, stage).total_bytes, setting.memory_limits[stage]
    samples = setting.costs.batch_size // number
    raise PlanError(
        f"even in {number} micro-batches, of {samples} {'sample' if samples == 1 else 'samples'} each, stage {stage} "
        f"of the cut {list(cut)} needs {need:,} bytes and has {limit:,}",
        hint="use more stages, larger devices, or set resources.memory_bytes where there is more memory than it seems",
        key="pipeline.micro_batches",
    )
