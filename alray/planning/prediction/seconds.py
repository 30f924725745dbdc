"""The seconds of runs of components: the only place that adds up costs.

A run of components is what a (virtual) stage of a cut holds. `RunSeconds` gives the durations of its actions, for one
run or for arrays of them; those of a cut are the durations of its runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from alray.planning.prediction.costs import Link
from alray.planning.prediction.partition import Places, before, values_of
from alray.planning.prediction.program import Floats
from alray.planning.prediction.setting import StepLayout
from alray.planning.schedules.actions import ActionKind
from alray.planning.schedules.durations import Durations, Through

LEAST_SHARE = 0.5  # of the time of a sample in a mini-batch, the least that it takes in a micro-batch

_NO_LINK = Link(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class RunSeconds:
    """Seconds of runs of components as (virtual) stages of a layout.

    Computations are divided by the speed of the stage's device. In pipelines they are those of one micro-batch: it
    takes the fixed time of its component plus its share of the rest of the mini-batch's time. The first forward, also
    of inference, includes getting the mini-batch ready; a forward that is computed again needs no new one. On the first
    virtual stage a backward is not split: no stage waits for I there, and G does it all. A pipeline has no L: the loss
    belongs to F. In inference a component's decoder runs once for each route that ends at it or above it.
    """

    setting: StepLayout

    def of(self, virtual: Places, first: Places, ends: Places) -> Durations:
        """The computations of components `first` to `ends` - 1 as this virtual stage, and its averages over replicas.

        The arguments are arrays that broadcast, or numbers.
        """
        setting, costs = self.setting, self.setting.costs
        speed = self._speeds[virtual]
        is_first = np.asarray(virtual) == 0
        data_s = np.where(is_first, costs.data_s, 0.0)

        def whole(name: str) -> Floats:
            return self._added(name, first, ends) / speed

        forward = whole("forward_s")
        backward = whole("backward_s")
        label = whole("label_s")
        update = whole("update_s")
        found = Durations(
            {"F": forward + data_s, "L": label, "B": backward - label, "U": update},
            averages_s=self._added("reduce_s", first, ends) if setting.replicas > 1 else (),
        )
        if not setting.scheduled.is_pipeline:
            return found
        share = 1.0 / setting.micro_batches
        overhead = costs.action_overhead_s if setting.stages > 1 else 0.0
        forward_fixed, backward_fixed = whole("forward_fixed_s"), whole("backward_fixed_s")
        backward = share_s(backward, backward_fixed, share)
        split = backward * costs.split_backward
        of_input = np.where(is_first, 0.0, costs.input_gradient_share * split)
        computing: dict[ActionKind, Floats] = {
            "F": share_s(forward + data_s, forward_fixed, share) + overhead,
            "B": backward + overhead,
            "U": update,
            "I": of_input + overhead,
            "G": np.where(is_first, backward, split - of_input) + overhead,
        }
        if setting.recomputes:
            computing["C"] = share_s(forward, forward_fixed, share) + overhead
        return replace(found, computing=computing)

    def of_cuts(self, cuts: Sequence[int] | Sequence[Sequence[int]]) -> Durations:
        """The durations of each action of a cut, or of many with an axis for them: in pipelines, of the computations
        and messages of one micro-batch."""
        sizes = np.array(cuts, dtype=np.int64)
        ends = np.cumsum(sizes, axis=-1)
        found = self.of(np.arange(sizes.shape[-1]), ends - sizes, ends)
        after = ends[..., :-1] - 1  # the component that each message comes after
        outputs, labels, down = (self._leaves * values_of(self.setting.costs, name)[after] for name in _SENT)
        if not self.setting.scheduled.is_pipeline:
            return self._with_messages(found, outputs - labels, labels, np.zeros(after.shape))
        share = 1.0 / self.setting.micro_batches
        return self._with_messages(found, share * outputs, None, share * down)

    def of_evaluation(self, cut: Sequence[int]) -> Durations:
        """The durations of an evaluation with whole mini-batches: outputs go up, answers of all routes above come
        down."""
        costs, sizes = self.setting.costs, np.array(cut, dtype=np.int64)
        ends = np.cumsum(sizes)
        virtual, after = np.arange(len(sizes)), ends[:-1] - 1
        up = values_of(costs, "infer_bytes")[after] * self._leaves
        down = values_of(costs, "route_bytes")[after + 1] * np.array(costs.routes_above)[after + 1] * self._leaves
        infer = self._added("infer_s", ends - sizes, ends) / self._speeds + np.where(virtual == 0, costs.data_s, 0.0)
        route = self._added("routes_s", ends - sizes, ends) / self._speeds
        return self._with_messages(Durations({"E": infer, "D": route}), up, None, down)

    def of_stage(self, stage: int, first: Places, ends: Places, *, sends: bool = True) -> Floats:
        """Seconds for which a stage is busy with a mini-batch where it holds these components, without virtual stages:
        its computations, and its half of each message at both ends.

        Args:
            sends: without it, no more than that, without the message that it sends; a longer run takes no less.
        """
        setting, costs = self.setting, self.setting.costs
        own = self.of(stage, first, ends)
        if not sends and setting.scheduled.is_pipeline and self._has_less_alone:
            least = LEAST_SHARE * min(1.0, costs.split_backward)
            done = self._added("forward_s", first, ends) + self._added("backward_s", first, ends)
            done *= least / self._speeds[stage]
            return done
        total: Floats = np.zeros(())
        for kind, seconds in own.computing.items():
            if (kind, stage) in setting.counts:
                total = total + setting.counts[kind, stage] * np.asarray(seconds)
        if setting.replicas > 1:
            total = total + np.asarray(own.averages_s)
        sent = values_of(costs, "output_bytes")
        if setting.scheduled.is_pipeline:
            sent = sent + values_of(costs, "gradient_message_bytes")
        half = np.concatenate([[0.0], sent * costs.edge_s_per_byte / 2])
        half[-1] = 0.0
        total = total + half[first] + sends * half[ends]
        unit = 2.0**-40 * (costs.train_s or 1.0)  # equal costs must be equal
        rounded: Floats = np.rint(total / unit) * unit
        return rounded

    @property
    def arrival_s(self) -> Floats:
        """[components + 1]: seconds for which a micro-batch passes all components before each one, in pipelines up and
        down."""
        if not self.setting.scheduled.is_pipeline:
            return self._until["forward_s"]
        found: Floats = (self._until["forward_s"] + self._until["backward_s"]) / self.setting.micro_batches
        return found

    @cached_property
    def alike(self) -> list[int]:
        """For each stage, the first one for which `of_stage` gives the same."""
        counts = self.setting.counts.items()
        keys = [
            (stage == 0, self._speeds[stage], sorted((kind, count) for (kind, own), count in counts if own == stage))
            for stage in range(self.setting.stages)
        ]
        return [keys.index(key) for key in keys]

    @cached_property
    def _speeds(self) -> Floats:
        """Of the device of each (virtual) stage."""
        speeds = self.setting.stage_speed or (1.0,) * self.setting.stages
        return np.array([speeds[stage] for stage in self.setting.holders])

    def _added(self, name: str, first: Places, ends: Places) -> Floats:
        until = self._until[name]
        found: Floats = until[ends] - until[first]
        return found

    @cached_property
    def _until(self) -> dict[str, Floats]:
        """[components + 1]: the seconds of all components before each one."""
        costs = self.setting.costs
        every = {name: values_of(costs, name) for name in _ADDED}
        every["routes_s"] = values_of(costs, "route_s") * [*costs.routes_above[1:], 0]
        return {name: before(seconds) for name, seconds in every.items()}

    @cached_property
    def _has_less_alone(self) -> bool:
        """Whether some component takes less than its share for a micro-batch."""
        return any(min(each.forward_fixed_s, each.backward_fixed_s) < 0 for each in self.setting.costs.components)

    @cached_property
    def _leaves(self) -> Floats:
        """1 where what a virtual stage passes on goes to another stage, 0 where it stays."""
        return np.array([float(lower != upper) for lower, upper in pairwise(self.setting.holders)])

    def _with_messages(self, durations: Durations, up: Floats, labels: Floats | None, down: Floats) -> Durations:
        """The durations with the seconds of each message, and for which it takes the link to the next (virtual) stage.
        Of one cut they are numbers of Python.

        Args:
            up, labels, down: bytes of each message.
        """
        per_byte, links = self.setting.costs.edge_s_per_byte, dict[str, Any]()
        if self._links:
            up_s = np.array([link.up_s_per_byte for link in self._links])
            links = {
                "up_link_s": up * up_s,
                "labels_link_s": () if labels is None else labels * up_s,
                "down_link_s": down * np.array([link.down_s_per_byte for link in self._links]),
                "link_latency_s": [link.latency_s for link in self._links],
                "link_buffer_s": [
                    link.buffer_bytes * max(link.up_s_per_byte, link.down_s_per_byte) for link in self._links
                ],
                "lines": self.lines,
            }
        found = replace(
            durations,
            up_s=up * per_byte,
            labels_up_s=() if labels is None else labels * per_byte,
            down_s=down * per_byte,
            latency_s=self.setting.costs.edge_latency_s,
            **links,
        )
        one_cut: dict[str, Any] = {
            name: each.tolist() for name, each in vars(found).items() if getattr(each, "ndim", 0) == 1
        }
        computing = {
            kind: np.asarray(each).tolist() if np.ndim(each) == 1 else each for kind, each in found.computing.items()
        }
        return replace(found, computing=computing, **one_cut)

    @property
    def lines(self) -> tuple[Through | None, ...]:
        """What the messages between each virtual stage and the next one go through, as `Durations` has it."""
        return tuple(None if link == _NO_LINK else link.through for link in self._links)

    @cached_property
    def _links(self) -> list[Link]:
        """The link from each virtual stage to the next one; none where all are through memory. Neighbours share a link
        both ways; the last stage and the first one have a separate link."""
        setting, found = self.setting, list[Link]()
        for lower, upper in pairwise(setting.holders) if any(setting.links) else ():
            number = min(lower, upper) if abs(lower - upper) == 1 else setting.stages - 1
            link = (setting.links[number] if lower != upper else None) or _NO_LINK
            if upper == lower - 1:
                link = replace(link, up_s_per_byte=link.down_s_per_byte, down_s_per_byte=link.up_s_per_byte)
            found.append(link)
        return found


_ADDED = (
    "forward_s",
    "backward_s",
    "label_s",
    "update_s",
    "reduce_s",
    "infer_s",
    "forward_fixed_s",
    "backward_fixed_s",
)
_SENT = ("output_bytes", "label_bytes", "gradient_message_bytes")


def share_s(whole_s: Floats, fixed_s: Floats, share: float) -> Floats:
    """Seconds of a computation on `share` times the samples.

    Args:
        fixed_s: of `whole_s`, what does not depend on their number; below 0 where fewer samples are faster each.
    """
    found: Floats = np.maximum(fixed_s + (whole_s - fixed_s) * share, LEAST_SHARE * whole_s * share)
    return found


def computing_s(setting: StepLayout, durations: Durations, *, averages: bool = True) -> list[float]:
    """Seconds that each stage computes for one mini-batch, over all its actions and virtual stages.

    Args:
        averages: whether averages over replicas count.
    """
    seconds, total = durations.computing, [0.0] * setting.num_parts
    for (kind, virtual), count in setting.counts.items():
        if kind in seconds:
            total[virtual] += count * seconds[kind][virtual]
    averaging = setting.by_stage(durations.averages_s if averages else ())
    return [own + more for own, more in zip(setting.by_stage(total), averaging, strict=True)]


def copies_s(setting: StepLayout) -> float:
    """Seconds for which copies of the last stage for every other one (`Costs.copy_bytes`) take what they are sent
    through, which no step is shorter than; 0 where they take none."""
    return max(copies_links(setting).values(), default=0.0)


def copies_links(setting: StepLayout) -> dict[int, float]:
    """The same for each link or network card, by the nearest stage to which copies go through it. A copy takes the
    slowest link on its way. By `pipeline.links` it has a line to each stage."""
    last, nearest, busy = setting.stages - 1, dict[Through, int](), defaultdict[int, float](float)
    each_bytes = setting.costs.copy_bytes / setting.costs.copy_every
    for peer in reversed(range(last)) if each_bytes and any(setting.links) else ():
        way = [link for link in setting.links[peer:last] if link is not None]
        if peer < last - 1 and way and way[0].own_line:
            way = [link for link in setting.links[last:] if link is not None]
        if slowest := max(way, key=lambda link: link.down_s_per_byte, default=None):
            at = peer if slowest.own_line else nearest.setdefault(slowest.through, peer)
            busy[at] += each_bytes * slowest.down_s_per_byte
    return busy
