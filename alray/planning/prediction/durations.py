"""The durations of a cut's actions, added up from the costs of its components."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from alray.planning.prediction.costs import ComponentCosts, Costs, Link
from alray.planning.prediction.memory import stage_ranges
from alray.planning.prediction.setting import StepSetting
from alray.planning.schedules.durations import Durations, Through
from alray.planning.schedules.placement import Place, round_robin

LEAST_SHARE = 0.5  # of the time of a sample in a mini-batch, the least that it takes in a micro-batch


_NO_LINK = Link(0.0, 0.0, 0.0)


def stage_durations(
    costs: Costs, partition: Sequence[int], stage_speed: Sequence[float] = (), place: Place = round_robin
) -> Durations:
    """The durations of one whole mini-batch on each (virtual) stage, and of the messages between stages.

    Computations are divided by the speed of the stage's device. The first forward, also of inference, includes getting
    the mini-batch ready. In inference a component's decoder runs once for each route that ends at it or above it.
    """
    ranges = stage_ranges(partition)
    components = costs.components
    speeds = _speeds(len(partition), stage_speed, place)

    def total(seconds: Callable[[ComponentCosts], float]) -> list[float]:
        return _totals(costs, partition, speeds, seconds)

    route = [each.route_s * routes for each, routes in zip(components, costs.routes_above, strict=True)]
    ends = [components[own.stop - 1] for own in ranges[:-1]]
    up = [costs.up_s(end) - end.label_bytes * costs.edge_s_per_byte for end in ends]
    forward = total(lambda component: component.forward_s)
    infer = total(lambda component: component.infer_s)
    for reading in (forward, infer):
        reading[0] += costs.data_s
    return Durations(
        forward_s=forward,
        backward_s=total(lambda component: component.backward_s - component.label_s),
        update_s=total(lambda component: component.update_s),
        infer_s=infer,
        route_s=[sum(route[own.start : own.stop]) / speed for own, speed in zip(ranges, speeds, strict=True)],
        up_s=up,
        down_s=[0.0 for _ in up],
        latency_s=costs.edge_latency_s,
        label_s=total(lambda component: component.label_s),
        labels_up_s=[end.label_bytes * costs.edge_s_per_byte for end in ends],
    )


def action_durations(setting: StepSetting, partition: Sequence[int]) -> Durations:
    """The duration of each action: in pipelines, of the computations and messages of one micro-batch.

    With several replicas an update includes averaging their gradients. A micro-batch takes the fixed time of its
    component plus its share of the rest of the mini-batch's time. A gradient that is not compressed has as many bytes
    as the output it belongs to, without its mask. On the first virtual stage a backward is not split: no stage waits
    for I there, and G does it all.
    A pipeline has no L: the loss belongs to F. A forward that is computed again needs no new mini-batch.
    """
    costs = setting.costs
    whole = stage_durations(costs, partition, setting.stage_speed, setting.place)
    speeds = _speeds(len(partition), setting.stage_speed, setting.place)
    if setting.replicas > 1:
        reduce = _totals(costs, partition, [1.0] * len(partition), lambda component: component.reduce_s)
        update = [u + r for u, r in zip(whole.update_s, reduce, strict=True)]
        whole = replace(whole, update_s=update, averages_s=reduce)
    lower = [costs.components[own.stop - 1] for own in stage_ranges(partition)[:-1]]
    if not setting.scheduled.is_pipeline:
        return _over_links(
            whole,
            setting,
            up=[end.output_bytes - end.label_bytes for end in lower],
            labels=[end.label_bytes for end in lower],
            down=[0] * len(lower),
        )
    share = 1.0 / setting.micro_batches

    def parts(seconds: Sequence[float], fixed: Callable[[ComponentCosts], float]) -> list[float]:
        fixed_s = _totals(costs, partition, speeds, fixed)
        return [share_s(all_s, own, share) for all_s, own in zip(seconds, fixed_s, strict=True)]

    overhead = costs.action_overhead_s if setting.stages > 1 else 0.0
    again = parts(_totals(costs, partition, speeds, lambda each: each.forward_s), lambda each: each.forward_fixed_s)
    forward = parts(whole.forward_s, lambda component: component.forward_fixed_s)
    with_loss = [b + label for b, label in zip(whole.backward_s, whole.labels_s, strict=True)]
    backward = parts(with_loss, lambda component: component.backward_fixed_s)
    split = [seconds * costs.split_backward for seconds in backward]
    of_input = [0.0] + [costs.input_gradient_share * seconds for seconds in split[1:]]
    of_weights = [backward[0]] + [(1.0 - costs.input_gradient_share) * seconds for seconds in split[1:]]
    sizes = _sent(setting, [share * end.output_bytes for end in lower])
    gradients = _sent(setting, [share * end.gradient_message_bytes for end in lower])
    return replace(
        _over_links(whole, setting, up=sizes, labels=[], down=gradients),
        label_s=(),
        labels_up_s=(),
        forward_s=[seconds + overhead for seconds in forward],
        backward_s=[seconds + overhead for seconds in backward],
        input_gradient_s=[seconds + overhead for seconds in of_input],
        weight_gradient_s=[seconds + overhead for seconds in of_weights],
        recompute_s=[seconds + overhead for seconds in again] if setting.recomputes else (),
        up_s=_sent(setting, [share * costs.up_s(end) for end in lower]),
        down_s=_sent(setting, [share * costs.down_s(end) for end in lower]),
    )


def share_s(whole_s: float, fixed_s: float, share: float) -> float:
    """Seconds of a computation on `share` times the samples.

    Args:
        fixed_s: of `whole_s`, what does not depend on their number; below 0 where fewer samples are faster each.
    """
    return max(fixed_s + (whole_s - fixed_s) * share, LEAST_SHARE * whole_s * share)


def computing_s(setting: StepSetting, durations: Durations) -> list[float]:
    """Seconds that each stage computes for one mini-batch, over all its actions and virtual stages."""
    return setting.scheduled.computing_s(durations, setting.stages, setting.micro_batches)


def copied_bytes(setting: StepSetting) -> float:
    """Bytes of the copies that the last stage sends to every other one (`Costs.copy_bytes`), for one mini-batch."""
    return setting.costs.copy_bytes * (setting.stages - 1) / setting.costs.copy_every


def copies_s(setting: StepSetting) -> float:
    """Seconds for which these copies take what they are sent through, which no step is shorter than; 0 where they take
    none."""
    return max(copies_links(setting).values(), default=0.0)


def copies_links(setting: StepSetting) -> dict[int, float]:
    """The same for each link or network card, by the nearest stage to which copies go through it. A copy takes the
    slowest link on its way. By `pipeline.links` it has a line to each stage."""
    last, nearest, busy = setting.stages - 1, dict[Through, int](), dict[int, float]()
    each_bytes = setting.costs.copy_bytes / setting.costs.copy_every
    for peer in reversed(range(last)) if each_bytes and any(setting.links) else ():
        way = [link for link in setting.links[peer:last] if link is not None]
        if peer < last - 1 and way and way[0].own_line:
            way = [link for link in setting.links[last:] if link is not None]
        if slowest := max(way, key=lambda link: link.down_s_per_byte, default=None):
            at = peer if slowest.own_line else nearest.setdefault(slowest.through, peer)
            busy[at] = busy.get(at, 0.0) + each_bytes * slowest.down_s_per_byte
    return busy


def evaluation_durations(setting: StepSetting, partition: Sequence[int]) -> Durations:
    """`stage_durations` with the messages of an evaluation: outputs go up, answers of all routes above come down."""
    costs = setting.costs
    components = costs.components
    lower = [own.stop - 1 for own in stage_ranges(partition)[:-1]]
    up = _sent(setting, [components[i].infer_bytes for i in lower])
    down = _sent(setting, [components[i + 1].route_bytes * costs.routes_above[i + 1] for i in lower])
    whole = stage_durations(costs, partition, setting.stage_speed, setting.place)
    return replace(
        _over_links(whole, setting, up=up, labels=[], down=down),
        up_s=[nbytes * costs.edge_s_per_byte for nbytes in up],
        labels_up_s=(),
        down_s=[nbytes * costs.edge_s_per_byte for nbytes in down],
    )


def _sent(setting: StepSetting, messages: Sequence[float]) -> list[float]:
    """Bytes or seconds of messages between each virtual stage and the next one, 0 of those within a stage."""
    stages = [setting.place(virtual, setting.stages) for virtual in range(len(messages) + 1)]
    return [each if stages[index] != stages[index + 1] else 0.0 for index, each in enumerate(messages)]


def _over_links(
    durations: Durations,
    setting: StepSetting,
    *,
    up: Sequence[float],
    labels: Sequence[float],
    down: Sequence[float],
) -> Durations:
    """The durations with the seconds that each message takes the link to the next (virtual) stage.

    Args:
        up, labels, down: bytes of each message.
    """
    if not any(setting.links):
        return durations
    own = [link_above(setting, virtual) for virtual in range(len(up))]
    return replace(
        durations,
        up_link_s=[link.up_s_per_byte * nbytes for link, nbytes in zip(own, up, strict=True)],
        labels_link_s=[link.up_s_per_byte * nbytes for link, nbytes in zip(own, labels, strict=True)] if labels else (),
        down_link_s=[link.down_s_per_byte * nbytes for link, nbytes in zip(own, down, strict=True)],
        link_latency_s=[link.latency_s for link in own],
        link_buffer_s=[link.buffer_bytes * max(link.up_s_per_byte, link.down_s_per_byte) for link in own],
        has_link=[link != _NO_LINK for link in own],
        link_through=[link.through for link in own],
    )


def link_above(setting: StepSetting, virtual: int) -> Link:
    """The link from a virtual stage to the next one. Neighbours share a link both ways; the last stage and the first
    one have a separate link."""
    lower, upper = setting.place(virtual, setting.stages), setting.place(virtual + 1, setting.stages)
    number = min(lower, upper) if abs(lower - upper) == 1 else setting.stages - 1
    link = setting.links[number] if setting.links and lower != upper else None
    if link is None:
        return _NO_LINK
    turned = upper == lower - 1
    return replace(link, up_s_per_byte=link.down_s_per_byte, down_s_per_byte=link.up_s_per_byte) if turned else link


def _speeds(parts: int, stage_speed: Sequence[float], place: Place) -> list[float]:
    """The speed of the device of each (virtual) stage."""
    return [stage_speed[place(virtual, len(stage_speed))] if stage_speed else 1.0 for virtual in range(parts)]


def _totals(
    costs: Costs, partition: Sequence[int], speeds: Sequence[float], seconds: Callable[[ComponentCosts], float]
) -> list[float]:
    """The seconds of all components of each (virtual) stage, on a device of its speed."""
    return [
        sum(seconds(costs.components[i]) for i in own) / speed
        for own, speed in zip(stage_ranges(partition), speeds, strict=True)
    ]
