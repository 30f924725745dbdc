"""A bound that holds for every cut: the least step that any cut could have, and cuts that come near to it.

A schedule of local losses says how long a step takes at least where a stage holds a given run of components
(`Schedule.least`). Of all cuts, a dynamic programme finds the one whose largest such time is smallest. What a message
waits for on its way is left out, so the step of this cut, and of the best one, may be longer.

Of a pipeline the bound comes from the ways through its lists (`alray.planning.prediction.ways`). A way takes so many
computations of one stage, and passes the other stages so many times. Without virtual stages its length depends on the
run of components that its stage holds, and on where this run lies; so a dynamic programme finds the cut whose longest
way is shortest. With virtual stages it depends on several runs. Then ways are weighted: no step is shorter than the
weighted mean of its ways, and a dynamic programme finds how short this mean can be. The weights are those that would
make the bound largest if components could be divided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial

import numpy as np
from numpy.typing import NDArray

from alray.planning.prediction.costs import ComponentCosts
from alray.planning.prediction.durations import LEAST_SHARE, link_above
from alray.planning.prediction.partition import (
    Cut,
    interval_sums,
    partition_intervals,
    run_ends,
    slowest_behind,
    smallest_sum,
)
from alray.planning.prediction.predict import program_of
from alray.planning.prediction.program import Codes, Floats
from alray.planning.prediction.setting import StepSetting
from alray.planning.prediction.ways import KINDS, Lists, Ways, circling_ways, longest_ways, own_ways
from alray.planning.schedules.actions import ActionKind
from alray.planning.schedules.schedule import LocalWork, own_work

_SAME = 1e-9
_DELAYS = (0.8, 1.2)
"""The delays by other stages with which ways are looked for, over those of a cut: with shorter ones ways stay on their
stage, with longer ones they pass the others often. Where all stages take the same, both are as long."""
_ABOVE = (0.0, 0.004, 0.01, 0.015)
"""How much longer than the bound the longest way of a cut may be, for stages that have more even work."""
_TIMES_EVEN = 4
_FEW = 16
"""Runs are looked at up to so many components, or so many times as many as in an even cut."""
_ROUNDED = 1e-12
_FAR = 1e100
"""Stands for what cannot be; an infinite number times zero is none."""
_UP: tuple[ActionKind, ...] = ("F",)
_DOWN: tuple[ActionKind, ...] = ("B", "I")

Vector = NDArray[np.float64]


def least_step(setting: StepSetting, cut: Cut, step_s: float) -> tuple[list[Cut], float]:
    """Cuts that may come near to the bound, and the bound, in seconds: no cut has a shorter step, whatever its memory.

    Args:
        cut: any cut.
        step_s: its step.
    """
    if setting.scheduled.is_pipeline:
        return PipelineBound(setting, cut).least(step_s)
    speeds = setting.stage_speed or (1.0,)
    works = {speed: _work(setting, speed) for speed in set(speeds)}
    fastest = works[max(speeds)]
    whole = LocalWork(*(float(each[0, -1]) for each in fastest))
    nothing = LocalWork(0.0, 0.0, 0.0, 0.0)
    least_of = setting.scheduled.least
    if setting.virtual_stages > 1:
        seconds = own_work(nothing, whole, whole)
        return [], max(seconds / setting.stages, float(least_of(nothing, nothing, whole)))
    busy = _busy(setting)
    up = _messages(setting)
    hops = setting.stages - 1
    whole = whole._replace(forward=whole.forward + float(np.sort(up[1:-1])[:hops].sum()))
    # [n + 1, 1]: of components 0 to i - 1, with the message to component i until it is to be unpacked.
    under = LocalWork(*(each[:1].T for each in fastest))
    below = under._replace(forward=under.forward + np.maximum(up - busy, 0.0)[:, None])
    least = {
        speed: least_of(below, work._replace(forward=work.forward + busy[:, None] + busy[None, :]), whole)
        for speed, work in works.items()
    }
    _, least_s = partition_intervals([least[speed] for speed in speeds], setting.stages)
    # Many cuts may have this bound: all of them where one stage works at a time. Of these, the one whose slowest stage
    # has the least work.
    alone = {
        speed: np.where(least[speed] <= least_s * (1.0 + _SAME), own_work(below, work, whole), np.inf)
        for speed, work in works.items()
    }
    return [partition_intervals([alone[speed] for speed in speeds], setting.stages)[0]], least_s


def _busy(setting: StepSetting) -> Vector:
    """[n + 1]: seconds for which a stage is busy with a message up where components 0 to i - 1 end."""
    costs = setting.costs
    return np.array([0.0, *(costs.up_s(each) / 2 for each in costs.components[:-1]), 0.0])


def _messages(setting: StepSetting) -> Vector:
    """[n + 1]: seconds from a forward to the one that waits for its message, there; without labels that may come
    later."""
    costs = setting.costs
    samples = [costs.up_s(each) - costs.edge_s_per_byte * each.label_bytes for each in costs.components[:-1]]
    return np.array([0.0, *(seconds + costs.edge_latency_s for seconds in samples), 0.0])


def _work(setting: StepSetting, speed: float) -> LocalWork:
    """The seconds of every run of components as a stage: matrices as `partition_intervals` takes them."""
    costs = setting.costs

    def each(name: str) -> list[float]:
        return [float(getattr(component, name)) for component in costs.components]

    update = interval_sums(each("update_s")) / speed
    if setting.replicas > 1:
        update = update + interval_sums(each("reduce_s"))
    forward = interval_sums(each("forward_s")) / speed
    forward[0, 1:] += costs.data_s  # the first stage gets the mini-batch ready
    return LocalWork(
        forward=forward,
        label=interval_sums(each("label_s")) / speed,
        backward=interval_sums([component.backward_s - component.label_s for component in costs.components]) / speed,
        update=update,
    )


class PipelineBound:
    """The bound of a setting, with ways that are long with one cut."""

    def __init__(self, setting: StepSetting, cut: Cut) -> None:
        self._setting, self._cut = setting, cut
        self._virtual = np.array([setting.held(stage) for stage in range(setting.stages)])
        lists = Lists.of(program_of(setting, 1), setting.micro_batches)
        found = [own_ways(lists, setting.virtual_stages)]
        if setting.scheduled.gradient_delay:
            found.append(circling_ways(lists))
        else:
            seconds, passing = _durations(setting, cut)
            found += [longest_ways(lists, self._virtual, seconds, factor * passing) for factor in _DELAYS]
        self._ways = _joined(found)

    def least(self, step_s: float) -> tuple[list[Cut], float]:
        """Cuts that may come near to the bound, and the bound, in seconds.

        Args:
            step_s: the step of a cut.
        """
        setting = self._setting
        longest = longest_run(setting, step_s)
        most = max(_FEW, _TIMES_EVEN * len(setting.costs.components) // setting.num_parts)
        runs = Runs.up_to(setting, min(longest, most))
        cuts, least_s = self._longest_way(runs, step_s) if setting.virtual_stages == 1 else self._mean_way(runs)
        if longest > most:
            least_s = min(least_s, self._with_run_of(most + 1))
        return cuts, min(least_s, step_s)

    def _with_run_of(self, length: int) -> float:
        """Seconds that no step is below where a stage holds a run of so many components or more.

        Before the stage has its first micro-batch, and after its last gradient, a micro-batch passes the components
        below. While the micro-batch that comes back first passes those above, the stage does forwards alone; and
        backwards alone while the one does that leaves last. What this takes longer than all others of that kind, the
        stage waits. With few micro-batches such cuts cannot be left out, and there are too many runs to look at all of
        them.
        """
        setting = self._setting
        forward, backward = (
            np.concatenate([[0.0], np.cumsum(each)]) for each in zip(*least_seconds(setting), strict=True)
        )
        until = forward + backward
        own, own_forward, own_backward = (each[length:] - each[:-length] for each in (until, forward, backward))
        if setting.scheduled.gradient_delay or setting.scheduled.splits(setting.stages):
            return float(own.min())  # no micro-batch passes all stages in a step; G is not on its way
        below, above = until[:-length], until[-1] - until[length:]
        count = setting.micro_batches
        meanwhile = np.minimum(own_forward, own_backward) * (count - 1) / count
        waited = np.maximum(0.0, above / count - meanwhile)
        return float((own + below / count + waited).min())

    def _longest_way(self, runs: Runs, step_s: float) -> tuple[list[Cut], float]:
        """The length of the longest way of the cut where it is shortest; and cuts whose longest way is little longer,
        with stages that have about the same work."""
        ways, stages = self._ways, self._setting.stages
        size = len(runs.beyond)
        up, down = _passed(runs, stages)
        above = _passed_above(runs, stages)
        computing, _ = runs.seconds(0)
        leaving = (ways.leaves > 0) & (ways.stage > 0)
        tail = ways.tail[leaving, 0].min(axis=0) if leaving.any() else np.zeros(len(KINDS))
        lead = np.where(runs.beyond[0], np.inf, tail @ computing[:, 0])  # by the run of stage 0
        most_lead = float(lead[np.isfinite(lead)].max())
        lengths, works = [], []
        for stage in range(stages):
            computing, _ = runs.seconds(stage)
            longest = np.zeros(runs.beyond.shape)
            for way in np.flatnonzero(ways.stage == stage):
                counts = ways.own[way, 0] + ways.tail[way, 0] * (stage == 0)
                length = np.tensordot(counts.astype(float), computing, axes=1)
                if not ways.leaves[way] and not ways.top[way]:  # the whole list
                    works.append(length.copy())
                if stage > 0 and not ways.leaves[way]:
                    length -= most_lead  # `lead` is added to all
                length += (ways.up[way, 0] * up[stage] + ways.leaves[way] * down[stage])[:-1, None]
                length += ways.top[way] * above[stage][runs.ends]
                np.maximum(longest, length, out=longest)
            lengths.append(np.where(runs.beyond | (longest > step_s), np.inf, longest))
        whole = np.maximum(lengths[0][0], lead + slowest_behind(lengths.__getitem__, size, stages, 1)[runs.ends[0]])
        least_s = float(whole.min())
        if not np.isfinite(least_s):
            return [], step_s

        def squares(stage: int, more: float) -> Floats:
            first = whole <= least_s * (1.0 + more)  # runs of stage 0
            longest_s = least_s * (1.0 + more) - (float(lead[first].min()) if stage else 0.0)
            found: Floats = (
                np.where(lengths[stage] <= longest_s * (1.0 + _ROUNDED), works[stage] / least_s, np.inf) ** 2
            )
            if stage == 0:
                found[0, ~first] = np.inf
            return found

        found = [smallest_sum(partial(squares, more=more), size, stages) for more in _ABOVE]
        return [each[0] for each in found if each is not None], least_s

    def _mean_way(self, runs: Runs) -> tuple[list[Cut], float]:
        """The weighted mean of the ways of the cut for which it is shortest."""
        setting, kinds = self._setting, len(KINDS)
        counts = self._counts()
        seconds, passing = _durations(setting, self._cut)
        whole = np.concatenate([seconds, passing.T], axis=1).sum(axis=0)  # as if any virtual stage could hold all
        mean = np.tensordot(_best_weights(counts @ whole), counts, axes=1)

        def length(virtual: int) -> Floats:
            computing, passes = runs.seconds(virtual)
            found = np.tensordot(mean[virtual, :kinds], computing, axes=1)
            found += np.tensordot(mean[virtual, kinds:], passes, axes=1)
            return np.where(runs.beyond, np.inf, found)

        found = smallest_sum(length, len(runs.beyond), setting.num_parts)
        return ([], found[1]) if found is not None else ([], np.inf)

    def _counts(self) -> Floats:
        """[ways, virtual stages, KINDS and 2]: how many computations of each virtual stage are on each way, and how
        often it passes it on its way up, and on its way down."""
        ways, setting, kinds = self._ways, self._setting, len(KINDS)
        every, mine = np.arange(len(ways.stage)), self._virtual[ways.stage]
        virtual = np.arange(setting.num_parts)
        counts = np.zeros((len(every), len(virtual), kinds + 2))
        up, down = counts[:, :, kinds], counts[:, :, kinds + 1]
        for own in range(setting.virtual_stages):
            counts[every, mine[:, own], :kinds] += ways.own[:, own]
            counts[:, self._virtual[0, own], :kinds] += ways.tail[:, own]
            below = mine[:, own - 1, None] if own else -1
            up += ways.up[:, own, None] * ((virtual > below) & (virtual < mine[:, own, None]))
            above = mine[:, own + 1, None] if own + 1 < setting.virtual_stages else setting.num_parts
            down += ways.down[:, own, None] * ((virtual > mine[:, own, None]) & (virtual < above))
        up += ways.top[:, None] * (virtual > mine[:, -1:])
        down += ways.top[:, None] * (virtual > mine[:, -1:])
        down += ways.leaves[:, None] * (virtual < mine[:, :1])
        return counts


def _best_weights(lengths: Floats) -> Floats:
    """Weights of ways, 1 together, with which the smallest mean of a column is largest.

    Args:
        lengths: [ways, virtual stages]; of each way, if that virtual stage held all components.
    """
    from scipy.optimize import linprog  # takes half a second

    ways, virtual = lengths.shape
    scale = float(np.median(lengths[lengths > 0]))
    found = linprog(
        np.append(np.zeros(ways), -1.0),
        A_ub=np.hstack([-lengths.T / scale, np.ones((virtual, 1))]),
        b_ub=np.zeros(virtual),
        A_eq=np.append(np.ones(ways), 0.0)[None, :],
        b_eq=[1.0],
        bounds=[*[(0.0, None)] * ways, (None, None)],
        method="highs-ipm",
    )
    weights = np.maximum(found.x[:-1], 0.0)
    shares: Floats = weights / weights.sum()
    return shares


def _durations(setting: StepSetting, cut: Cut) -> tuple[Floats, Floats]:
    """[virtual stages, KINDS] and [2, virtual stages]: as `Runs.seconds`, for one cut."""
    ends = np.cumsum(cut, dtype=np.int64)
    runs = Runs(setting, ends - cut, ends)
    every = [runs.seconds(virtual) for virtual in range(len(cut))]
    seconds = np.stack([each[:, virtual] for virtual, (each, _) in enumerate(every)])
    return seconds, np.stack([each[:, virtual] for virtual, (_, each) in enumerate(every)], axis=1)


def _passed(runs: Runs, stages: int) -> Floats:
    """[2, stages, components + 1]: seconds of a micro-batch that passes all stages below each one on its way up, and
    down, at least, where these hold the components before each one."""
    size, longest = runs.beyond.shape
    passed = np.full((2, stages, size + 1), _FAR)
    passed[:, 0, 0] = 0.0
    for stage in range(stages - 1):
        _, passing = runs.seconds(stage)
        for length in range(1, longest + 1):
            into = passed[:, stage + 1, length:]
            through = passed[:, stage, :-length] + passing[:, : size + 1 - length, length - 1]
            np.minimum(into, through, out=into)
    return passed


def _passed_above(runs: Runs, stages: int) -> Floats:
    """[stages, components + 1]: seconds of a micro-batch that passes all stages above each one, up and back, at least,
    where these hold each component and those after it."""
    passed = np.full((stages, len(runs.beyond) + 1), _FAR)
    passed[-1, -1] = 0.0
    for stage in reversed(range(1, stages)):
        _, passing = runs.seconds(stage)
        both = np.where(runs.beyond, _FAR, passing.sum(axis=0) + passed[stage][runs.ends])
        passed[stage - 1, :-1] = both.min(axis=1)
    return passed


def _joined(every: Sequence[Ways]) -> Ways:
    """All of these ways, each once."""
    joined = [np.concatenate([getattr(each, field.name) for each in every]) for field in fields(Ways)]
    flat = np.concatenate([each.reshape(len(each), -1) for each in joined], axis=1)
    first = np.unique(flat, axis=0, return_index=True)[1]
    return Ways(*(each[first] for each in joined))


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
