"""What the actions of a cut take: the costs of its components, added up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from alray.plan.costs import ComponentCosts, Costs
from alray.plan.memory import stage_ranges
from alray.plan.setting import Setting
from alray.plan.simulate import Durations


def stage_durations(costs: Costs, partition: Sequence[int], stage_speed: Sequence[float] = ()) -> Durations:
    """Of one whole mini-batch: what each (virtual) stage's actions and the messages between them take.

    Computations are divided by the speed of the stage's device; the first forward begins with getting the mini-batch
    ready. Inference of component l (from 0) of L comes down
    once for each of the L - l depths it decodes.
    """
    ranges = stage_ranges(partition)
    components = costs.components
    count = len(components)
    speeds = tuple(stage_speed) or (1.0,)

    def total(seconds: Callable[[ComponentCosts], float]) -> list[float]:
        return [
            sum(seconds(components[i]) for i in own) / speeds[place % len(speeds)] for place, own in enumerate(ranges)
        ]

    route = [component.route_s * (count - index) for index, component in enumerate(components)]
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

    A micro-batch takes its share of the mini-batch, and `Costs.action_overhead_s` whatever its size. A gradient is as
    large as the output it belongs to.
    """
    whole = stage_durations(setting.costs, partition, setting.stage_speed)
    if not setting.is_pipeline:
        return whole
    overhead, share = setting.costs.action_overhead_s, 1.0 / setting.micro_batches
    up = [seconds * share if setting.stages > 1 else 0.0 for seconds in whole.up_s]
    of_input = setting.costs.input_gradient_share
    return replace(
        whole,
        forward_s=[seconds * share + overhead for seconds in whole.forward_s],
        backward_s=[seconds * share + overhead for seconds in whole.backward_s],
        input_gradient_s=[seconds * share * of_input + overhead for seconds in whole.backward_s],
        weight_gradient_s=[seconds * share * (1.0 - of_input) + overhead for seconds in whole.backward_s],
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
    """`stage_durations` with the messages of evaluation: outputs go up, the answers of all depths above come down."""
    components = costs.components
    lower = [own.stop - 1 for own in stage_ranges(partition)[:-1]]
    return replace(
        stage_durations(costs, partition, stage_speed),
        up_s=[components[i].infer_bytes * costs.edge_s_per_byte for i in lower],
        down_s=[components[i + 1].route_bytes * (len(components) - i - 1) * costs.edge_s_per_byte for i in lower],
    )
