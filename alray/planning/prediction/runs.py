"""The seconds of runs of components that a (virtual) stage of a pipeline may hold, many at once.

They are those of `alray.planning.prediction.durations.action_durations`, with messages shared between both ends.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from alray.planning.prediction.costs import ComponentCosts
from alray.planning.prediction.durations import LEAST_SHARE, link_above
from alray.planning.prediction.partition import run_ends
from alray.planning.prediction.program import Codes, Floats
from alray.planning.prediction.setting import StepSetting
from alray.planning.prediction.ways import KINDS
from alray.planning.schedules.actions import ActionKind

_UP: tuple[ActionKind, ...] = ("F",)
_DOWN: tuple[ActionKind, ...] = ("B", "I")


class Runs:
    """Runs of components. The arrays of a run broadcast to one shape.

    Attributes:
        first: the first component of each run.
        beyond: which runs would end behind the last component.
        ends: the component behind each run; behind the last component for those beyond.
    """

    def __init__(self, setting: StepSetting, first: Codes, ends: Codes) -> None:
        components = setting.costs.components
        self._setting = setting
        self.first = first
        self.beyond = ends > len(components)
        self.ends = ends = np.minimum(ends, len(components))

        def total(seconds: Callable[[ComponentCosts], float]) -> Floats:
            before = np.concatenate([[0.0], np.cumsum([seconds(each) for each in components])])
            found: Floats = before[ends] - before[first]
            return found

        self._forward, self._backward = total(lambda each: each.forward_s), total(lambda each: each.backward_s)
        self._forward_fixed = total(lambda each: each.forward_fixed_s)
        self._backward_fixed = total(lambda each: each.backward_fixed_s)
        self._update, self._reduce = total(lambda each: each.update_s), total(lambda each: each.reduce_s)
        share = 1.0 / setting.micro_batches
        self._up = np.array([0.0, *(share * each.output_bytes for each in components)])
        self._down = np.array([0.0, *(share * each.gradient_message_bytes for each in components)])
        self._up_s = np.array([0.0, *(share * setting.costs.up_s(each) for each in components)])
        self._down_s = np.array([0.0, *(share * setting.costs.down_s(each) for each in components)])

    def seconds(self, virtual: int) -> tuple[Floats, Floats]:
        """As a virtual stage: [KINDS, *runs], of the computations of a micro-batch, each with the messages right before
        and behind it; and [2, *runs], of a micro-batch that passes it on its way up, and on its way down."""
        setting, costs = self._setting, self._setting.costs
        share = 1.0 / setting.micro_batches
        speed = setting.stage_speed[setting.place(virtual, setting.stages)] if setting.stage_speed else 1.0
        overhead = costs.action_overhead_s if setting.stages > 1 else 0.0

        def part(whole: Floats, fixed: Floats, more: float = 0.0) -> Floats:
            whole, fixed = whole / speed + more, fixed / speed
            found: Floats = np.maximum(fixed + (whole - fixed) * share, LEAST_SHARE * whole * share) + overhead
            return found

        forward = part(self._forward, self._forward_fixed, costs.data_s if virtual == 0 else 0.0)
        again, backward = part(self._forward, self._forward_fixed), part(self._backward, self._backward_fixed)
        split = (backward - overhead) * costs.split_backward
        of_input = (costs.input_gradient_share if virtual else 0.0) * split
        of_weights = split - of_input if virtual else backward - overhead
        update = self._update / speed + (self._reduce if setting.replicas > 1 else 0.0)
        seconds = np.stack([forward, backward, of_input + overhead, of_weights + overhead, again, update])
        back = np.minimum(seconds[1], seconds[2]) if setting.scheduled.splits(setting.stages) else backward
        passing = np.stack([forward, back])
        below, above = self._leaves(virtual - 1), self._leaves(virtual)
        for way, message_s, kinds in ((0, self._up_s, _UP), (1, self._down_s, _DOWN)):
            busy = (below * message_s[self.first] + above * message_s[self.ends]) / 2
            passing[way] += busy
            for kind in kinds:
                seconds[KINDS.index(kind)] += busy
        if virtual:
            link = link_above(setting, virtual - 1)
            for way, nbytes, s_per_byte in ((0, self._up, link.up_s_per_byte), (1, self._down, link.down_s_per_byte)):
                on_link = s_per_byte * below * nbytes[self.first]
                passing[way] += on_link + below * (link.latency_s + costs.edge_latency_s)
        return seconds, passing

    @classmethod
    def up_to(cls, setting: StepSetting, longest: int) -> Runs:
        """All runs of at most `longest` components: [components, longest], in the order of
        `alray.planning.prediction.partition.run_ends`."""
        size = len(setting.costs.components)
        return cls(setting, np.arange(size)[:, None], run_ends(size, longest))

    def _leaves(self, virtual: int) -> bool:
        """Whether what a virtual stage passes up goes to another stage."""
        setting = self._setting
        if not 0 <= virtual < setting.num_parts - 1:
            return False
        return setting.place(virtual, setting.stages) != setting.place(virtual + 1, setting.stages)


def longest_run(setting: StepSetting, step_s: float) -> int:
    """The most components that a stage can have done in a step of so many seconds."""
    until = np.concatenate([[0.0], np.cumsum([sum(each) for each in least_seconds(setting)])])
    most = np.searchsorted(until, until[:-1] + step_s, side="right") - 1 - np.arange(len(until) - 1)
    return max(1, min(int(most.max()), len(most) - setting.num_parts + 1))


def least_seconds(setting: StepSetting) -> list[tuple[float, float]]:
    """Seconds of each component's forward and backward for a mini-batch, at least, wherever it is."""
    costs = setting.costs
    # Micro-batches may be faster than their share of the mini-batch.
    forward = 1.0 if all(each.forward_fixed_s >= 0 for each in costs.components) else LEAST_SHARE
    backward = 1.0 if all(each.backward_fixed_s >= 0 for each in costs.components) else LEAST_SHARE
    if setting.scheduled.splits(setting.stages):
        backward *= min(1.0, costs.split_backward)
    speed = max(setting.stage_speed or (1.0,))
    return [(forward * each.forward_s / speed, backward * each.backward_s / speed) for each in costs.components]
