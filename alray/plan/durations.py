"""What the actions of a cut take: the costs of its components, added up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from alray.plan.costs import ComponentCosts, Costs
from alray.plan.memory import stage_ranges
from alray.plan.setting import Setting
from alray.plan.simulate import Durations

_LEAST_SHARE = 0.5  # of its time in the mini-batch a sample takes in a micro-batch, however small that is


def stage_durations(costs: Costs, partition: Sequence[int], stage_speed: Sequence[float] = ()) -> Durations:
    """Of one whole mini-batch: what each (virtual) stage's actions and the messages between them take.

    Computations are divided by the speed of the stage's device; the first forward begins with getting the mini-batch
    ready. Inference of a component comes down once for each route that ends there or above.
    """
    ranges = stage_ranges(partition)
    components = costs.components
    speeds = tuple(stage_speed) or (1.0,)

    def total(seconds: Callable[[ComponentCosts], float]) -> list[float]:
        return _totals(costs, partition, stage_speed, seconds)

    route = [component.route_s * _num_routes(components[index:]) for index, component in enumerate(components)]
    up = [components[own.stop - 1].output_bytes * costs.edge_s_per_byte for own in ranges[:-1]]
    forward = total(lambda component: component.forward_s)
    forward[0] += costs.data_s
    return Durations(
        forward_s=forward,
        backward_s=total(lambda component: component.backward_s),
        update_s=total(lambda component: component.update_s),
        infer_s=total(lambda component: component.infer_s),
        route_s=[sum(route[own.start : own.stop]) / speeds[place % len(speeds)] for place, own in enumerate(ranges)],
        up_s=up,
        down_s=[0.0 for _ in up],
        latency_s=costs.edge_latency_s,
    )


def action_durations(setting: Setting, partition: Sequence[int]) -> Durations:
    """Of one action each: in pipelines a computation or message of one micro-batch.

    An update begins with the gradients of all replicas becoming one.
    A micro-batch takes what each takes whatever its size, and its share of the rest of the mini-batch. A gradient is as
    large as the output it belongs to. Of a backward in two parts, torch leaves all to the second one on the first
    virtual stage, for which nobody waits.
    """
    costs, speed = setting.costs, setting.stage_speed
    whole = stage_durations(costs, partition, speed)
    if setting.replicas > 1:
        reduce = _totals(costs, partition, (), lambda component: component.reduce_s)
        whole = replace(whole, update_s=[u + r for u, r in zip(whole.update_s, reduce, strict=True)])
    if not setting.is_pipeline:
        return whole
    share = 1.0 / setting.micro_batches

    def parts(seconds: Sequence[float], fixed: Callable[[ComponentCosts], float]) -> list[float]:
        fixed_s = _totals(costs, partition, speed, fixed)
        return [
            max(own + (all_s - own) * share, _LEAST_SHARE * all_s * share)
            for all_s, own in zip(seconds, fixed_s, strict=True)
        ]

    overhead = costs.action_overhead_s
    forward = parts(whole.forward_s, lambda component: component.forward_fixed_s)
    backward = parts(whole.backward_s, lambda component: component.backward_fixed_s)
    split = [seconds * costs.split_backward for seconds in backward]
    of_input = [0.0] + [costs.input_gradient_share * seconds for seconds in split[1:]]
    of_weights = [backward[0]] + [(1.0 - costs.input_gradient_share) * seconds for seconds in split[1:]]
    lower = [own.stop - 1 for own in stage_ranges(partition)[:-1]]
    message = costs.edge_s_per_byte * share if setting.stages > 1 else 0.0
    up = [costs.components[index].output_bytes * message for index in lower]
    return replace(
        whole,
        forward_s=[seconds + overhead for seconds in forward],
        backward_s=[seconds + overhead for seconds in backward],
        input_gradient_s=[seconds + overhead for seconds in of_input],
        weight_gradient_s=[seconds + overhead for seconds in of_weights],
        up_s=up,
        down_s=up,
    )


def computing_s(setting: Setting, durations: Durations) -> list[float]:
    """Seconds each stage computes for one mini-batch, all its actions and virtual stages together."""
    backward = durations.backward_s
    if setting.schedule == "zero_bubble":
        backward = [i + g for i, g in zip(durations.input_gradient_s, durations.weight_gradient_s, strict=True)]
    times = setting.micro_batches
    parts = [times * (f + b) + u for f, b, u in zip(durations.forward_s, backward, durations.update_s, strict=True)]
    return [sum(parts[stage :: setting.stages]) for stage in range(setting.stages)]


def evaluation_durations(costs: Costs, partition: Sequence[int], stage_speed: Sequence[float] = ()) -> Durations:
    """`stage_durations` with the messages of evaluation: outputs go up, the answers of all routes above come down."""
    components = costs.components
    lower = [own.stop - 1 for own in stage_ranges(partition)[:-1]]
    return replace(
        stage_durations(costs, partition, stage_speed),
        up_s=[components[i].infer_bytes * costs.edge_s_per_byte for i in lower],
        down_s=[
            components[i + 1].route_bytes * _num_routes(components[i + 1 :]) * costs.edge_s_per_byte for i in lower
        ],
    )


def _num_routes(components: Sequence[ComponentCosts]) -> int:
    """Routes of inference that end at one of these components."""
    return sum(component.ends_route for component in components)


def _totals(
    costs: Costs, partition: Sequence[int], stage_speed: Sequence[float], seconds: Callable[[ComponentCosts], float]
) -> list[float]:
    """The seconds of each (virtual) stage's components together, on its device."""
    speeds = tuple(stage_speed) or (1.0,)
    return [
        sum(seconds(costs.components[i]) for i in own) / speeds[place % len(speeds)]
        for place, own in enumerate(stage_ranges(partition))
    ]
