"""The predicted memory of each stage at its peak."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from math import ceil

import numpy as np

from alray.planning.prediction.partition import Matrix, Places, RunCost, run_sums, values_of
from alray.planning.prediction.peaks import Priced, moments_of, price, run_peaks
from alray.planning.prediction.plan import Memory
from alray.planning.prediction.setting import StepSetting
from alray.planning.schedules.edge_slots import most_in_use

Run = tuple[Places, Places]
"""The first component, and the one behind the last."""


def memory_of(setting: StepSetting, partition: Sequence[int], stage: int) -> Memory:
    """Predicted peak of one stage of a cut, bytes.

    It is the memory of the stage's device. A checkpoint is written from a copy of weights, buffers and optimizer state.
    Where gradients are late, there are further versions of the weights, each as large as the gradients.
    """
    ranges = stage_ranges(partition)
    runs = [(ranges[virtual].start, ranges[virtual].stop) for virtual in setting.held(stage)]
    most = max(_priced(setting, stage, runs), key=lambda each: float(each.total))
    gradients, activations = ceil(most.gradients), ceil(most.activations)
    lasting = {name: int(each) for name, each in _lasting(setting, stage, runs).items()}
    return Memory(
        **lasting | {"gradients_bytes": gradients + lasting["gradients_bytes"]},
        activations_bytes=activations,
        temporary_bytes=ceil(most.total) - gradients - activations,
    )


def run_bytes(setting: StepSetting, stage: int, first: Places, ends: Places) -> Matrix:
    """The totals of `memory_of` in settings without virtual stages, for many runs of components at once."""
    runs = [(first, ends)]
    peak: Matrix = np.ceil(reduce(np.maximum, (each.total for each in _priced(setting, stage, runs))))
    return sum(_lasting(setting, stage, runs).values(), start=peak)


def _lasting(setting: StepSetting, stage: int, runs: Sequence[Run]) -> dict[str, Matrix]:
    """The bytes that a stage holds in each moment, by the fields of `Memory`."""
    parameters, optimizer, averages = (sum((each(*run) for run in runs), start=np.zeros(())) for each in _sums(setting))
    memory = setting.memory(stage)
    return {
        "parameters_bytes": parameters,
        "gradients_bytes": averages,
        "optimizer_bytes": optimizer,
        "channel_bytes": np.ceil(_messages(setting, stage, runs)) + _copy_bytes(setting, stage),
        "snapshot_bytes": memory.snapshot * (parameters + optimizer),
        "batch_bytes": np.array(memory.batches * setting.costs.batch_bytes if stage == 0 else 0),
    }


def _priced(setting: StepSetting, stage: int, runs: Sequence[Run]) -> list[Priced]:
    """What the stage holds in each moment at which it may hold most."""
    peaks_of = run_peaks(setting.costs, setting.micro_batches)
    peaks = [peaks_of(first, ends) for first, ends in runs]
    moments = moments_of(setting.scheduled, stage, setting.stages, setting.micro_batches, len(peaks))
    return [price(moment, peaks) for moment in moments]


@lru_cache(maxsize=2)
def _sums(setting: StepSetting) -> tuple[RunCost, ...]:
    """Bytes of runs of components: of weights, with their further versions; of what is kept between two updates
    besides; and of the tensors in which replicas average."""
    components, several = setting.costs.components, setting.replicas > 1
    versions = setting.scheduled.gradient_delay
    every = [
        [each.parameter_bytes + versions * each.gradient_bytes for each in components],
        [each.optimizer_bytes + several * each.average_state_bytes for each in components],
        [several * each.average_bytes for each in components],
    ]
    return tuple(map(run_sums, every))


def _messages(setting: StepSetting, stage: int, runs: Sequence[Run]) -> Matrix:
    """The buffers of the edges of a stage.

    Local losses: a buffer is as large as the largest message of its edge, and holds the messages of `in_flight`
    mini-batches and one that is worked on or sent; `StepSetting.memory` says what of it is in this memory. Pipelines: a
    slot for each micro-batch that has come and whose backward is not done, and one gradient on its way down. A gradient
    that arrives belongs to the peak of a backward.
    """
    total: Matrix = np.zeros(())
    memory, held, parts = setting.memory(stage), setting.held(stage), setting.micro_batches
    output = values_of(setting.costs, "output_bytes")
    received = [output[first - 1] for virtual, (first, _) in zip(held, runs, strict=True) if virtual > 0]
    sent = [output[ends - 1] for virtual, (_, ends) in zip(held, runs, strict=True) if virtual < setting.top]
    if setting.scheduled.is_pipeline:
        if setting.stages == 1:
            return total
        sources = [setting.stage_of(virtual - 1) for virtual in held if virtual > 0]
        for below, nbytes in zip(sources, received, strict=True):
            slots = most_in_use(
                setting.schedule, below, stage, setting.stages, parts, setting.virtual_stages, down=False
            )
            total = total + (slots / sources.count(below) + 1) / parts * nbytes
        return total
    edges = [(received, memory.waiting and setting.stages > 1)]  # what a stage hands over to itself does not wait
    if memory.sent and setting.stages > 1:
        edges.append((sent, True))
    for edge, waiting in edges:
        slots = setting.in_flight * len(edge) * waiting + 1
        total = total + slots * reduce(np.maximum, edge, np.zeros(()))
    return total


def _copy_bytes(setting: StepSetting, stage: int) -> int:
    """The buffers of the edges that carry copies from the last stage: two for each, and one where copies that wait are
    not in this memory."""
    if setting.stages == 1:
        return 0
    memory, copy = setting.memory(stage), setting.costs.copy_bytes
    if stage == setting.stages - 1:
        return 2 * copy * (setting.stages - 1) if memory.sent else 0
    return 2 * copy if memory.waiting else copy


def stage_ranges(partition: Sequence[int]) -> list[range]:
    """The components of each stage, counted from 0."""
    ranges = []
    first = 0
    for count in partition:
        ranges.append(range(first, first + count))
        first += count
    return ranges
